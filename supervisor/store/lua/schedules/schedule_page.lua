-- Read a page of the schedules. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  cursor         0 at first, then the one of the previous page
--       count          roughly how many
--
-- Includes  clock
--
-- Returns  cursor (0 at the end), now_ms, then id, definition, watermark, next_ms for each. One may come twice.
local page = redis.call('HSCAN', keys.schedule_def, cursor, 'COUNT', count)
local reply = { page[1], whole(now_ms()) }
for i = 1, #page[2], 2 do
  local id = page[2][i]
  local n = #reply
  reply[n + 1] = id
  reply[n + 2] = page[2][i + 1]
  reply[n + 3] = redis.call('HGET', keys.schedule_mark, id) or '0'
  reply[n + 4] = redis.call('ZSCORE', keys.schedule_next, id) or ''
end
return reply
