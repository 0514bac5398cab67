-- Forget runs that were given up. History keeps a line of each.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--       history        how many ended attempts the queue remembers
--       note           who asks and why, for the history
--       job            which they must be of; empty: any
--       ids...         at most 100
-- Includes  room
--           place
--
-- Returns  for each run: 1 it went, 0 it is not dead or of another job
if not_whole(history) or tonumber(history) < 0 or #ARGV < FIRST or #ARGV > FIRST + 99 then
  return refuse('history and up to 100 ids')
end
local reply = {}
check_queue(queue)
for i = FIRST, #ARGV do
  local id = ARGV[i]
  local data = redis.call('HGET', keys.data(queue), id)
  reply[#reply + 1] = is_of(data, job) and drop_dead(queue, tonumber(history), id, data, note) and 1 or 0
end
return reply
