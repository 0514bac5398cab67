-- Write watermarks where there are none: what the leader knows of what was decided, after Redis lost its data.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       items...       schedule, mark_ms, lost: once for each, at most 250 times. `lost` due times up to the watermark may
--                      have run or not; they go into the log as missed
-- Includes  clock
--           term
--
-- Returns  how many were written, how many due times are lost by them, and 1 if a leader has begun to declare schedules or
--          to look at their zones since the loss: then nothing is written, since what is absent now is new
--
-- One that is there is never touched: after a partial roll-back the server's decides. None is later than this server's
-- now: the caller's clock may be ahead.
local FIELDS, LOG_MAX = 3, 10000
if #ARGV < FIRST or (#ARGV - FIRST + 1) % FIELDS ~= 0 then return refuse('items of 3 fields') end
for i = FIRST, #ARGV, FIELDS do
  if not string.match(ARGV[i + 1] .. ' ' .. ARGV[i + 2], '^%d+ %d+$') or #ARGV[i + 1] + #ARGV[i + 2] > 30 then
    return refuse('watermark of ' .. ARGV[i])
  end
end
local begun = redis.call('HMGET', keys.schedule_sets, '#revision', '#zones')
if begun[1] or begun[2] then return { 0, 0, 1 } end
local now, written, lost, lines = now_ms(), 0, 0, {}
for i = FIRST, #ARGV, FIELDS do
  local mark = whole(math.min(tonumber(ARGV[i + 1]), now))
  if redis.call('HSETNX', keys.schedule_mark, ARGV[i], mark) == 1 then
    written = written + 1
    if ARGV[i + 2] ~= '0' then
      lost = lost + tonumber(ARGV[i + 2])
      lines[#lines + 1] = table.concat({ ARGV[i], mark, epoch, '-', 'MISSED', ARGV[i + 2], whole(now) }, ' ')
    end
  end
end
if #lines > 0 then
  inform('XADD', keys.schedule_log, 'MAXLEN', '~', LOG_MAX, '*', 'r', table.concat(lines, '\n'))
end
return { written, lost, 0 }
