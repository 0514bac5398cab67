-- Give the lease back, so that a standby may lead at once.
--
-- KEYS  lease          hash: the current term
--       genesis        string: identity of this data set
--       events         stream: released goes in, in the same step, and wakes the standbys
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       reason         one word, for people
--       prefer         who should lead next; empty: any. The others let it pass for a moment
-- Includes  room
--           lease
--
-- Returns  code, then the lease as it now is
--          RELEASED  it is free
--          ALREADY   this term was released before: an earlier reply was lost
--          LOST      another term was granted, or there is none
if not_whole(epoch) or nonce == '' then return refuse('epoch must be a whole number and nonce not empty') end
local now = now_ms()
local r = redis.call('HMGET', lease, 'epoch', 'nonce', 'holder', 'released', 'roster')
if r[1] == epoch and r[3] == '' and r[4] == nonce then return world('ALREADY', now) end
if r[1] ~= epoch or r[2] ~= nonce then return world('LOST', now) end
-- "released" keeps the nonce, so that a repeated release is told from a stranger's.
redis.call('HSET', lease, 'holder', '', 'nonce', '', 'until', '0', 'released', nonce, 'released_at', whole(now))
event('released', r[1], r[3], reason, 'prefer', prefer, 'roster', r[5] or '0')
return world('RELEASED', now)
