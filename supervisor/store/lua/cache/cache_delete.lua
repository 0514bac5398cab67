-- Forget a cached value, and what is being computed for it.
--
-- KEYS  value          string, expires: the value
--       lease          string, expires: the nonce of who computes it; `-` is nobody's
--
-- Returns  1 there was one, 0 there was none
--
-- Who computes for longer than its lease is not known here any more, so a lease of nobody stays: whatever it brings within
-- ten minutes from now is not kept. It keeps nobody from computing.
local LATE_MS = 600000
local gone = redis.call('DEL', value) -- first: it is allowed when memory is full, and with it the rest
redis.call('SET', lease, '-', 'PX', LATE_MS)
return gone
