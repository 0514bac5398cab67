-- Read what became of commands.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  ids...         of the commands
--
-- Returns  the answer to each; empty where there is none, not yet or not any more
local reply = {}
for i = FIRST, #ARGV do
  reply[i] = redis.call('GET', keys.command(ARGV[i])) or ''
end
return reply
