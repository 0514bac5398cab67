-- End the pause of a queue, and wake workers for what waits in it.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
-- Includes  queue
--
-- Returns  1 it was paused
--          0 it was not
local was = redis.call('DEL', keys.paused(queue))
for _, letter in ipairs({ 'a', 's' }) do
  local waiting = 0
  for _, list in ipairs({ keys.ready(queue, letter, '0'), keys.ready(queue, letter, '1'), keys.ready(queue, letter, '2'),
    keys.suspect(queue, letter) }) do
    local length = redis.pcall('LLEN', list)
    waiting = waiting + (type(length) == 'number' and length or 0)
  end
  if waiting == 0 and redis.pcall('EXISTS', keys.woken(queue)) == 1 then
    waiting = 1 -- a slot came free meanwhile, and who waits for it is brought back by a turn
  end
  ring(queue, letter, math.min(waiting, 4)) -- whoever wakes rings on while work is left
end
return was
