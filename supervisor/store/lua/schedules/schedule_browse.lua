-- Read a page of the schedules as they are stored. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  cursor         0 at first, then the one of the previous page
--       count          roughly how many
-- Includes  clock
--
-- Returns  cursor (0 at the end), now_ms, then id, record, watermark, next_ms, pause, the counters of its state and
--          1 or 0 (whether runs of it are unfinished), why its definition cannot be used (or empty), and what it expects
--          of its runs (or empty), for each. One may come twice.
local page = redis.call('HSCAN', keys.schedule_def, cursor, 'COUNT', count)
local reply = { page[1], whole(now_ms()) }
for i = 1, #page[2], 2 do
  local id, n = page[2][i], #reply
  reply[n + 1] = id
  reply[n + 2] = page[2][i + 1]
  reply[n + 3] = moment(redis.call('HGET', keys.schedule_mark, id)) or '0'
  reply[n + 4] = redis.call('ZSCORE', keys.schedule_next, id) or ''
  reply[n + 5] = redis.call('HGET', keys.schedule_paused, id) or ''
  reply[n + 6] = string.match(redis.call('HGET', keys.schedule_state, id) or '', '^[^\n]*')
  reply[n + 8] = string.match(redis.call('HGET', keys.schedule_invalid, id) or '', '\n(.*)$') or ''
  reply[n + 9] = redis.call('HGET', keys.schedule_expected, id) or ''
  reply[n + 7] = string.find(redis.call('HGET', keys.schedule_live, id) or '', '^[^>]') and '1' or '0' -- >: its new name
end
return reply
