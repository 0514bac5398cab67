-- Ask the holder of one term to hand over. It learns it with its next renewal.
--
-- KEYS  lease          hash: the current term
--       genesis        string: identity of this data set
--       events         stream: resign_requested goes in
-- ARGV  epoch          of the term that shall end
--       to             who should lead next; empty: any
--       by             who asks, for people; a proof may stand behind it (core/signing.py)
-- Includes  room
--           lease
--
-- Returns  code, then the lease as it now is
--          REQUESTED  the record says so. Asked again for the same replica, nothing changes but that it is signed now
--          LOST       another term was granted, or nobody holds the lease
if not_whole(epoch) then return refuse('epoch must be a whole number') end
local now = now_ms()
local r = redis.call('HMGET', lease, 'epoch', 'holder', 'resign_epoch', 'resign_to', 'resign_by')
if r[1] ~= epoch or (r[2] or '') == '' then return world('LOST', now) end
local is_signed = string.find(by, ' [signed ', 1, true) and r[5] ~= by
if r[3] ~= r[1] or r[4] ~= to or is_signed then
  redis.call('HSET', lease, 'resign_epoch', r[1], 'resign_to', to, 'resign_by', by)
  event('resign_requested', r[1], by, to == '' and 'any' or to)
end
return world('REQUESTED', now)
