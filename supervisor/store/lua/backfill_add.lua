-- Ask for the runs of a schedule's past: the leader enqueues them, step by step.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  backfill       id of this request, kept for its retries
--       schedule       id
--       cursor_ms      nominal times up to this one are not wanted
--       limit          at most so many runs
--       is_forced      1: also what ran or may have run, under ids of their own
--       keep_ms        how long one that ended is shown, and the runs it enqueued are remembered
--       memory         at most so many runs of one schedule are remembered
--       json           the request
--
-- Includes  clock
--           queue
--           limits
--           control
--           backfill
--
-- Returns  code, now_ms
--          ADDED    the leader will see to it. A repeated call answers so
--          UNKNOWN  there is no such schedule
--          FULL     100 are under way, or 1000 are remembered: cancel one, or wait
--          CAPPED   the schedule's backfills of the last days would exceed `memory`
local ACTIVE_MAX, KNOWN_MAX = 100, 1000
if not_whole(3, 7) or ARGV[1] == '' or string.find(ARGV[2], '%s') or string.find(ARGV[8], '\n') then
  return refuse('cursor_ms, limit, is_forced, keep_ms, memory')
end
check_plan()
redis.call('HLEN', BACKFILLS)
local now = now_ms()
if redis.call('HEXISTS', BACKFILLS, ARGV[1]) == 1 then
  return { 'ADDED', whole(now) }
end
if redis.call('HEXISTS', SCHEDULE .. 'def', ARGV[2]) == 0 then
  return { 'UNKNOWN', whole(now) }
end
local active, known, remembered = 0, 0, 0
local all = redis.call('HGETALL', BACKFILLS)
for i = 1, #all, 2 do
  local b = backfill_of(all[i + 1])
  if not b or (b.state ~= 'active' and tonumber(b.updated) < now - tonumber(ARGV[6])) then
    redis.call('HDEL', BACKFILLS, all[i])
  else
    known = known + 1
    active = active + (b.state == 'active' and 1 or 0)
    if b.schedule == ARGV[2] and b.forced ~= '1' then
      remembered = remembered + tonumber(b.state == 'active' and b.limit or b.enqueued)
    end
  end
end
if active >= ACTIVE_MAX or known >= KNOWN_MAX then
  return { 'FULL', whole(now) }
end
if ARGV[5] ~= '1' and remembered + tonumber(ARGV[4]) > tonumber(ARGV[7]) then
  return { 'CAPPED', whole(now) }
end
local number = whole(redis.call('HINCRBY', SCHEDULE .. 'sets', '#backfills', 1))
redis.call('HSET', BACKFILLS, ARGV[1], backfill_text({ state = 'active', cursor = ARGV[3], enqueued = '0',
  skipped = '0', updated = whole(now), limit = ARGV[4], number = number, forced = ARGV[5], schedule = ARGV[2],
  note = '', json = ARGV[8] }))
tell('backfill', ARGV[2])
return { 'ADDED', whole(now) }
