-- Keep what was computed, if it may still be believed.
--
-- KEYS  value          string, expires: the value
--       lease          string, expires: the nonce of who computes it; `-` is nobody's
-- ARGV  nonce          of the caller
--       ttl_ms         for how long it is kept; 0: it could not be computed, so the next one may try at once
--       value          the value
--
-- Returns  1 kept, 0 not: another one computes or computed it meanwhile, or it was deleted
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[1] then
  return 0
end
if holder then
  redis.call('DEL', KEYS[2])
end
if ARGV[2] == '0' or (not holder and redis.call('EXISTS', KEYS[1]) == 1) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
return 1
