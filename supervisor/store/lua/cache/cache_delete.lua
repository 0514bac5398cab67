-- Forget a cached value, and what is being computed for it, however long that takes.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  name           of the function
--       key            of the call
--
-- Returns  1 there was one, 0 there was none
redis.call('DEL', keys.cache_take(name, key))
redis.call('ZREM', keys.cache_calls(name), key)
return redis.call('DEL', keys.cache_value(name, key))
