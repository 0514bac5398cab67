-- Read everything about some schedules. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  buffered       at most so many of the nominal times that wait
--       ids...         at most 250
-- Includes  clock
--
-- Returns  now_ms, then id, record (empty: there is none), watermark, next_ms, pause, state, unfinished runs, how many
--          nominal times wait, the first of them separated by blanks, when it was removed (within the last day), why its
--          definition cannot be used (or empty), and what it expects of its runs (or empty)
if not_whole(buffered) then return refuse('buffered') end
local now, DAY_MS = now_ms(), 86400000
local reply = { whole(now) }
for i = FIRST, #ARGV do
  local id, n = ARGV[i], #reply
  local buffer = keys.schedule_buffer(id)
  reply[n + 1] = id
  reply[n + 2] = redis.call('HGET', keys.schedule_def, id) or ''
  reply[n + 3] = moment(redis.call('HGET', keys.schedule_mark, id)) or '0'
  reply[n + 4] = redis.call('ZSCORE', keys.schedule_next, id) or ''
  reply[n + 5] = redis.call('HGET', keys.schedule_paused, id) or ''
  reply[n + 6] = redis.call('HGET', keys.schedule_state, id) or ''
  reply[n + 7] = (string.gsub(redis.call('HGET', keys.schedule_live, id) or '', '^>.*$', '')) -- it has another name now
  reply[n + 8] = whole(redis.call('LLEN', buffer))
  reply[n + 9] = table.concat(redis.call('LRANGE', buffer, 0, tonumber(buffered) - 1), ' ')
  reply[n + 11] = string.match(redis.call('HGET', keys.schedule_invalid, id) or '', '\n(.*)$') or ''
  reply[n + 12] = redis.call('HGET', keys.schedule_expected, id) or ''
  local removed = natural(string.match(redis.call('HGET', keys.schedule_gone, id) or '', '^%d+'))
  reply[n + 10] = removed and removed >= now - DAY_MS and whole(removed) or ''
end
return reply
