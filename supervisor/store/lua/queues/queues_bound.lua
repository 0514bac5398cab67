-- Publish how many runs may wait in a queue, for whoever enqueues.
--
-- KEYS  length_max     string
-- ARGV  most           0: any number
-- Includes  clock
--
-- Returns  1; where the number is 0: how many bounds there were, 0 or 1
if not_whole(most) or tonumber(most) < 0 then return refuse('most must be a whole number') end
if most == '0' then return redis.call('DEL', length_max) end
redis.call('SET', length_max, most)
return 1
