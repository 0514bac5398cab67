-- Decide what schedules owe: enqueue runs, and advance watermarks, in one step.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       skew_limit_ms  how far ahead of this server's time a due time may be
--       log_cap        how many decisions are remembered
--       at_ms          the caller's now, by which it judged what was missed, is too old, or has had its time
--       items...       line, shape, data: once for each item. A few long texts cost less than many short ones
--                      line   what revision mark_ms nominal_ms new_mark_ms next_ms missed schedule id
--                      shape  overlap max_running buffer_limit cancel_grace_ms max_runs wait keep_ms queue; - is none
--                      data   of the run; empty for missed and drop
--                      what     due: this nominal time is due. missed: none runs, the watermark advances
--                               start: the first that waits in the buffer may start. force: the same, and what was asked
--                               to stop has had its time. drop: the first that waits is too old. initial: the run that
--                               a new schedule begins with; with `missed` 1 it may have run already, and does not
--                      next_ms  when to look again; -: not by time
--                      missed   how many due times pass without a run, and letters that say why
--                      wait     what the end of a run causes
--                      keep_ms  for how long a completed schedule is kept
--                      id, queue  of the run; - for missed and drop
-- Includes  term
--           fire_decide
--
-- Returns  now_ms, then code and watermark for each item
--          FIRED      enqueued; or it ended at once, recorded as a duplicate: another run holds its unique key
--          SKIPPED    as many runs as may be are unfinished, or an initial run of an earlier life is: decided, nothing
--                     enqueued
--          BUFFERED   the same, and this nominal time waits for one of them to end
--          DROPPED    the same, and the buffer is full; or what waited was too old
--          REPLACED   what waited gave way to a newer nominal time
--          MISSED     decided: the watermark advanced, nothing was to be enqueued; or, of another item than missed, a run that
--                     its schedule did not make has its id
--          COMPLETED  it had all the runs it may have; it is out of the plan
--          HELD       what waits must go on waiting; nothing written
--          DUP        the watermark, or what waits, is not what the caller saw; nothing written. A watermark equal to the
--                     new one: the caller's own earlier attempt, whose reply was lost
--          STALE      the definition changed or is gone; nothing written
--          PAUSED     nothing written; not so for what was due before a pause that is over
--          SKEWED     the due time is too far ahead of this server's time, or at_ms is, and the item depends on it;
--                     nothing written
--
-- Does not ask whether the lease has run out: a term that nobody replaced cannot conflict.
-- Reads everything first, decides, and writes at the end with as few commands as possible: 250 items in a few ms.
-- A request to look at the schedule (a score of 0 or less in the plan) is never overwritten here.
local FIELDS = 3
if not_whole(skew_limit_ms, log_cap, at_ms) or #ARGV < FIRST or (#ARGV - FIRST + 1) % FIELDS ~= 0 then
  return refuse('items of 3 fields')
end
for i = FIRST, #ARGV, FIELDS do
  if not add_item(ARGV[i], ARGV[i + 1], ARGV[i + 2]) then return refuse('item ' .. ARGV[i]) end
end
read_schedules(epoch, skew_limit_ms, at_ms)
local reply = { at }
for k, item in ipairs(items) do
  local code = decide(item)
  item.code = code
  reply[2 * k], reply[2 * k + 1] = code, marks[item.n]
end
write_runs()
write_schedules()
write_waits()
write_log(log_cap)
return reply
