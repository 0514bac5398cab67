-- Let nothing be fetched from a queue. What runs goes on, and runs may still be put into it.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--       reason         for people
--       by             who asks
-- Includes  clock
--
-- Returns  1 it is paused now
--          0 it was: reason and name are those of the latest request
local was = redis.call('EXISTS', keys.paused(queue))
redis.call('SADD', keys.queues, queue)
redis.call('SET', keys.paused(queue), reason .. '\n' .. by .. '\n' .. whole(now_ms()))
return 1 - was
