-- Let the leader fire again after a loss of data: a person has looked.
--
-- KEYS  lease          hash: the current term
--       genesis        string: identity of this data set
--       events         stream: hold_cleared goes in
-- ARGV  by             who decided, for people
-- Includes  lease
--
-- Returns  code, then the lease as it now is
--          CLEARED  the leader goes on with its next renewal
--          ALREADY  nothing is held
local now = now_ms()
local r = redis.call('HMGET', lease, 'epoch', 'hold')
if (r[2] or '') == '' then return world('ALREADY', now) end
redis.call('HDEL', lease, 'hold')
event('hold_cleared', r[1] or '0', by, r[2])
return world('CLEARED', now)
