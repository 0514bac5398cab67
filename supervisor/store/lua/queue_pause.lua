-- Let nothing be fetched from a queue. What runs goes on, and runs may still be put into it.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--       reason         for people
--       by             who asks
--
-- Includes  clock
--           queue
--           limits
--
-- Returns  1 it is paused now
--          0 it was: reason and name are those of the latest request
local was = redis.call('EXISTS', q(queue, 'paused'))
redis.call('SADD', prefix .. 'queues', queue)
redis.call('SET', q(queue, 'paused'), reason .. '\n' .. by .. '\n' .. whole(now_ms()))
return 1 - was
