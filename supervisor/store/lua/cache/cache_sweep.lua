-- Forget cached values by a pattern, a page of all keys at a time.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  cursor         0 at first, then the one of the previous page
--       pattern        of their keys, behind the kind: name, colon, key
--       count          about how many keys are looked at
--
-- Returns  next cursor (0 at the end), how many values went
--
-- What is being computed for one is not kept either.
local page = redis.call('SCAN', cursor, 'MATCH', keys.cache('?', pattern), 'COUNT', count)
local gone, values, leases = 0, keys.cache('v', ''), keys.cache('l', '')
for _, key in ipairs(page[2]) do
  if string.sub(key, 1, #leases) == leases then
    redis.call('SET', key, '-', 'PX', math.max(redis.call('PTTL', key), 1))
  elseif string.sub(key, 1, #values) == values then
    gone = gone + redis.call('DEL', key)
  end
end
return { page[1], gone }
