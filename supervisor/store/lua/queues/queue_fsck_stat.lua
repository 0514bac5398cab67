-- Forget counters of a queue that are no numbers: nothing could be added to them.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--       is_mending     1: they are forgotten; 0: nothing is written
--       names...       which look wrong
-- Includes  clock
--
-- Returns  name, and what was done about it (or empty): for each that is wrong
if is_mending ~= '0' and is_mending ~= '1' then return refuse('is_mending 0 or 1') end
local key, reply = keys.stat(queue), {}
for n = FIRST, #ARGV do
  local value = redis.call('HGET', key, ARGV[n])
  if value and not string.match(value, '^%-?%d+$') then
    reply[#reply + 1], reply[#reply + 2] = ARGV[n], is_mending == '1' and 'begins anew' or ''
    if is_mending == '1' then
      redis.call('HDEL', key, ARGV[n])
    end
  end
end
return reply
