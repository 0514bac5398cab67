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
  local is_ours = is_of(redis.call('HGET', keys.data(queue), id), job)
  local was_dead = is_ours and redis.call('ZREM', keys.dead(queue), id) or 0
  reply[#reply + 1] = was_dead
  if was_dead == 1 then
    note_add(queue, tonumber(history), id, 'dropped', redis.call('HGET', keys.data(queue), id), note)
    erase(queue, id)
    count_add(queue, 'dropped', 1)
  end
end
return reply
