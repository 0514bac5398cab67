-- Keep what was computed, if it may still be believed.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  name           of the function
--       key            of the call
--       nonce          of the caller
--       mark           of its computation
--       ttl_ms         for how long it is kept; 0: it could not be computed, so the next one may try at once
--       new_value      what is kept
-- Includes  clock
--
-- Returns  1 kept, 0 not: somebody else's was kept meanwhile, it was deleted, or an hour has gone since the lease
local bad = not_whole(ttl_ms)
if bad then return refuse('ttl_ms must be a whole number, got ' .. bad) end
local calls, take = keys.cache_calls(name), keys.cache_take(name, key)
local holder, known = unpack(redis.call('HMGET', take, 'holder', 'mark'))
if known ~= mark or (ttl_ms == '0' and holder ~= nonce) then return 0 end
if ttl_ms == '0' then
  redis.call('DEL', take)
  redis.call('ZREM', calls, key)
  return 0
end
redis.call('SET', keys.cache_value(name, key), new_value, 'PX', ttl_ms) -- first: it is refused when memory is full
redis.call('DEL', take)
redis.call('ZADD', calls, whole(now_ms() + ttl_ms), key)
return 1
