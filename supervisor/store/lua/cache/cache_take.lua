-- Read a cached value, or be the one who computes it.
--
-- KEYS  value          string, expires: the value
--       lease          string, expires: the nonce of who computes it; `-` is nobody's
-- ARGV  nonce          of the caller
--       lease_ms       for how long nobody else computes it
--
-- Returns  HIT, the value
--          MINE, empty: the caller is to compute it
--          BUSY, empty: another one does, who may be dead: ask again, but not for ever
local cached = redis.call('GET', value)
if cached then return { 'HIT', cached } end
local holder = redis.call('GET', lease)
if holder and holder ~= '-' and holder ~= nonce then return { 'BUSY', '' } end
redis.call('SET', lease, nonce, 'PX', lease_ms)
return { 'MINE', '' }
