-- Forget cached values of a function by a pattern, and what is being computed for them, a page of its calls at a time.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  name           of the function
--       cursor         0 at first, then the one of the previous page
--       pattern        of the keys of its calls
--       count          about how many calls are looked at
--
-- Returns  next cursor (0 at the end), how many values went
local calls, gone = keys.cache_calls(name), 0
local page = redis.call('ZSCAN', calls, cursor, 'MATCH', pattern, 'COUNT', count)
for n = 1, #page[2], 2 do
  redis.call('DEL', keys.cache_take(name, page[2][n]))
  redis.call('ZREM', calls, page[2][n])
  gone = gone + redis.call('DEL', keys.cache_value(name, page[2][n]))
end
return { page[1], gone }
