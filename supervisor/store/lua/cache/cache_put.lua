-- Keep what was computed, if it may still be believed.
--
-- KEYS  value          string, expires: the value
--       lease          string, expires: the nonce of who computes it; `-` is nobody's
-- ARGV  nonce          of the caller
--       ttl_ms         for how long it is kept; 0: it could not be computed, so the next one may try at once
--       new_value      what is kept
--
-- Returns  1 kept, 0 not: another one computes or computed it meanwhile, or it was deleted
local holder = redis.call('GET', lease)
if holder and holder ~= nonce then return 0 end
if holder then
  redis.call('DEL', lease)
end
if ttl_ms == '0' or (not holder and redis.call('EXISTS', value) == 1) then return 0 end
redis.call('SET', value, new_value, 'PX', ttl_ms)
return 1
