-- Find schedules that nothing will ever look at: in no plan, and neither paused nor completed. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  cursor         0 at first, then the one of the previous page
--       count          roughly how many are examined
-- Includes  live
--
-- Returns  cursor (0 at the end), then the ids. There are none unless something is wrong.
local page = redis.call('HSCAN', keys.schedule_mark, cursor, 'COUNT', count)
local reply = { page[1] }
for i = 1, #page[2], 2 do
  local id = page[2][i]
  if not redis.call('ZSCORE', keys.schedule_next, id) and redis.call('HEXISTS', keys.schedule_def, id) == 1
    and redis.call('HEXISTS', keys.schedule_paused, id) == 0
    and counters(redis.call('HGET', keys.schedule_state, id) or '')[11] == 0 then
    reply[#reply + 1] = id
  end
end
return reply
