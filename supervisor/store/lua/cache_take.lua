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
local value = redis.call('GET', KEYS[1])
if value then
  return { 'HIT', value }
end
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= '-' and holder ~= ARGV[1] then
  return { 'BUSY', '' }
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return { 'MINE', '' }
