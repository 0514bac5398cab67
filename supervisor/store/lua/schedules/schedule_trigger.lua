-- Run a schedule now, beside its plan: the watermark, the counters and a pause stay as they are.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  schedule       its id
--       revision       of the definition that the run was made from
--       overlap        allow, or skip: not while an earlier run of it is unfinished
--       max_running    how many may be unfinished before skip refuses
--       memory_ms      how long the same run is not enqueued again
--       run            id of the run
--       queue          where it goes
--       cap            at most so many runs of one schedule are remembered for a day; 0: this one is not counted
--       data           the run
-- Includes  control
--
-- Returns  code and now_ms
--          TRIGGERED  enqueued; or it ended at once, recorded as a duplicate: another run holds its unique key
--          DUPLICATE  this run was enqueued before, and is remembered, unfinished or dead; nothing written. A repeated
--                     call answers so
--          TAKEN      a run that the schedule did not make has this id; nothing written
--          SKIPPED    an earlier run is unfinished; nothing written
--          CAPPED     the schedule was triggered too often within a day; nothing written
--          STALE      the definition changed; nothing written, make the run anew
--          UNKNOWN    there is no such schedule
local DAY_MS = 86400000
if not_whole(revision, max_running, memory_ms, cap) or not is_head(data) or tonumber(memory_ms) < 1
  or not (overlap == 'allow' or overlap == 'skip') then
  return refuse('revision, overlap, max_running, memory_ms, cap and data')
end
check_plan()
check_types(queue, string.sub(data, 1, 3))
local now = now_ms()
local is_known, held = has_run(run), redis.call('HGET', keys.data(queue), run)
if is_known or held then
  return { (is_known or schedule_of(run, held) == schedule) and 'DUPLICATE' or 'TAKEN', whole(now) }
end
local record = redis.call('HGET', keys.schedule_def, schedule)
if not record then return { 'UNKNOWN', whole(now) } end
if definition_of(record) ~= revision then return { 'STALE', whole(now) } end
local lines = overlap == 'skip' and unfinished(schedule) or {}
if overlap == 'skip' and #lines >= tonumber(max_running) then return { 'SKIPPED', whole(now) } end
if cap ~= '0' then
  local counter = keys.schedule_keyed(schedule)
  local count = tonumber(redis.call('GET', counter) or '0') or 0
  if count >= tonumber(cap) then return { 'CAPPED', whole(now) } end
  redis.call('SET', counter, whole(count + 1), unpack(count == 0 and { 'PX', DAY_MS } or { 'KEEPTTL' }))
end
redis.call('SET', keys.ran(run), whole(now), 'PX', memory_ms)
if start(queue, run, data) and overlap == 'skip' then
  lines[#lines + 1] = queue .. ' ' .. run
  redis.call('HSET', keys.schedule_live, schedule, table.concat(lines, '\n'))
end
return { 'TRIGGERED', whole(now) }
