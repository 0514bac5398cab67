-- Take a replica off the list of those who could lead.
--
-- KEYS  candidates     hash: who could lead
--       lease          hash: the current term; counts the changes of that list
-- ARGV  replica        whose entry goes
--
-- Returns  1 if it was there
local was_there = redis.call('HDEL', KEYS[1], ARGV[1])
if was_there == 1 and redis.call('HEXISTS', KEYS[2], 'epoch') == 1 then
  redis.call('HINCRBY', KEYS[2], 'roster', 1)
end
return was_there
