-- Enqueue the next nominal times of a backfill, and advance its cursor, in one step.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       backfill       id
--       seen_ms        the cursor that the caller saw
--       cursor_ms      the new one
--       state          active, done or failed: what it is then
--       note           for people
--       revision       of the definition that the runs were made from; empty without items
--       overlap        allow, skip, or buffer_all: each waits until an earlier one has ended
--       max_running    how many may be unfinished before skip or buffer_all holds one up
--       memory_ms      how long each run is remembered, apart from forced ones, whose ids hold a #
--       skipped_before how many nominal times in between are known to have run
--       items...       nominal_ms, run, queue, data, at most 100 times, oldest first
-- Includes  term
--           control
--           backfill
--
-- Returns  code, now_ms, record
--          STEPPED  done as asked
--          BLOCKED  the first items only: the next waits for an earlier run, or one that the schedule itself owes
--          OVER     it is not active any more; nothing written
--          MOVED    the cursor is not the one that was seen: the caller's own earlier call; nothing written
--          STALE    the definition changed; nothing written
--          GONE     there is no such backfill
local FIELDS = 4
if not_whole(seen_ms, cursor_ms, max_running, memory_ms, skipped_before) or (#ARGV - FIRST + 1) % FIELDS ~= 0 or string.find(note, '\n') then
  return refuse('cursors, max_running, memory_ms, skipped_before and items of 4 fields')
end
for i = FIRST, #ARGV, FIELDS do
  if not_whole(ARGV[i]) or not is_head(ARGV[i + 3]) then return refuse('item ' .. ARGV[i + 1]) end
  check_types(ARGV[i + 2], string.sub(ARGV[i + 3], 1, 3))
end
check_plan()
local now = now_ms()
local b = backfill_of(redis.call('HGET', BACKFILLS, backfill))
if not b then return { 'GONE', whole(now), '' } end
if b.state ~= 'active' or b.cursor ~= seen_ms then
  return { b.state ~= 'active' and 'OVER' or 'MOVED', whole(now), backfill_text(b) }
end
if #ARGV >= FIRST and definition_of(redis.call('HGET', keys.schedule_def, b.schedule)) ~= revision then
  return { 'STALE', whole(now), backfill_text(b) }
end

-- What waits in the buffer, or was started from it, since the caller looked: the only past that still changes.
local own = {}
for _, nominal in ipairs(redis.call('LRANGE', keys.schedule_buffer(b.schedule), 0, -1)) do
  own[nominal] = true
end
local started = {}
for from, span in string.gmatch(redis.call('HGET', keys.schedule_state, b.schedule) or '', '\nU(%d+) (%d+) ') do
  started[#started + 1] = { tonumber(from), tonumber(from) + tonumber(span) }
end
local function is_own(nominal)
  for _, stretch in ipairs(started) do
    if stretch[1] <= tonumber(nominal) and tonumber(nominal) <= stretch[2] then return true end
  end
  return own[nominal]
end

local lines = overlap ~= 'allow' and unfinished(b.schedule) or {}
local mark, room = mark_of(b.schedule), tonumber(max_running) - #lines
if overlap == 'buffer_all' and next(own) and redis.call('HEXISTS', keys.schedule_paused, b.schedule) == 0 then
  room = 0 -- what waits for the schedule's own turn goes first
end
local enqueued, skipped, cursor, is_blocked = 0, 0, seen_ms, false
for i = FIRST, #ARGV, FIELDS do
  local nominal, run, queue, data = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local is_forced = string.find(run, '#', 1, true) ~= nil
  -- What lies after the watermark the schedule itself still decides.
  if tonumber(nominal) > mark or (overlap == 'buffer_all' and room <= 0) then
    is_blocked = true
    break
  end
  if (overlap == 'skip' and room <= 0) or has_run(run)
    or (not is_forced and is_own(nominal)) or not start(queue, run, data) then
    skipped = skipped + 1
  else
    enqueued, room = enqueued + 1, room - 1
    if not is_forced then
      redis.call('SET', keys.ran(run), whole(now), 'PX', memory_ms)
    end
    lines[#lines + 1] = queue .. ' ' .. run
  end
  cursor = nominal
end
if overlap ~= 'allow' and enqueued > 0 then
  redis.call('HSET', keys.schedule_live, b.schedule, table.concat(lines, '\n'))
end
if not is_blocked then
  cursor, b.state, b.note, skipped = cursor_ms, state, note, skipped + tonumber(skipped_before)
end
b.cursor, b.updated = cursor, whole(now)
b.enqueued, b.skipped = whole(tonumber(b.enqueued) + enqueued), whole(tonumber(b.skipped) + skipped)
redis.call('HSET', BACKFILLS, backfill, backfill_text(b))
return { is_blocked and 'BLOCKED' or 'STEPPED', whole(now), backfill_text(b) }
