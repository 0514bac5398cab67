-- Forget a cached value, and what is being computed for it.
--
-- KEYS  value          string, expires: the value
--       lease          string, expires: the nonce of who computes it; `-` is nobody's
--
-- Returns  1 there was one, 0 there was none
if redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('SET', KEYS[2], '-', 'PX', math.max(redis.call('PTTL', KEYS[2]), 1))
end
return redis.call('DEL', KEYS[1])
