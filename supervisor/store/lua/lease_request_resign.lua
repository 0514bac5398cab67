-- Ask the holder of one term to hand over. It learns it with its next renewal.
--
-- KEYS  lease          hash: the current term
--       genesis        string: identity of this data set
--       events         stream: resign_requested goes in
-- ARGV  epoch          of the term that shall end
--       to             who should lead next; empty: any
--       by             who asks, for people
--
-- Includes  clock
--           room
--           number
--           lease
--
-- Returns  code, then the lease as it now is
--          REQUESTED  the record says so. Asked again for the same replica, nothing changes
--          LOST       another term was granted, or nobody holds the lease
if not_whole(epoch) then
  return refuse('epoch must be a whole number')
end
local now = now_ms()
local r = redis.call('HMGET', lease, 'epoch', 'holder', 'resign_epoch', 'resign_to')
if r[1] ~= epoch or (r[2] or '') == '' then
  return world('LOST', now)
end
if r[3] ~= r[1] or r[4] ~= to then
  redis.call('HSET', lease, 'resign_epoch', r[1], 'resign_to', to, 'resign_by', by)
  event('resign_requested', r[1], by, to == '' and 'any' or to)
end
return world('REQUESTED', now)
