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
-- Includes  control
--           backfill
--
-- Returns  code, now_ms
--          ADDED    the leader will see to it. A repeated call answers so
--          UNKNOWN  there is no such schedule
--          FULL     100 are under way, or 1000 are remembered: cancel one, or wait. Of those that ended, the oldest that
--                   enqueued nothing or was forced makes room: no limit of its schedule counts it
--          CAPPED   the schedule's backfills of the last days would exceed `memory`
local ACTIVE_MAX, KNOWN_MAX = 100, 1000
if not_whole(cursor_ms, limit, is_forced, keep_ms, memory) or backfill == '' or string.find(schedule, '%s') or string.find(json, '\n') then
  return refuse('cursor_ms, limit, is_forced, keep_ms, memory')
end
check_plan()
redis.call('HLEN', BACKFILLS)
local now = now_ms()
if redis.call('HEXISTS', BACKFILLS, backfill) == 1 then return { 'ADDED', whole(now) } end
if redis.call('HEXISTS', keys.schedule_def, schedule) == 0 then return { 'UNKNOWN', whole(now) } end
local active, known, remembered, oldest, oldest_ms = 0, 0, 0, nil, nil
local all = redis.call('HGETALL', BACKFILLS)
for i = 1, #all, 2 do
  local b = backfill_of(all[i + 1])
  if not b or (b.state ~= 'active' and tonumber(b.updated) < now - tonumber(keep_ms)) then
    redis.call('HDEL', BACKFILLS, all[i])
  else
    known = known + 1
    active = active + (b.state == 'active' and 1 or 0)
    local counts_for_none = b.state ~= 'active' and (b.enqueued == '0' or b.forced == '1')
    if counts_for_none and not (oldest and oldest_ms <= tonumber(b.updated)) then
      oldest, oldest_ms = all[i], tonumber(b.updated)
    end
    if b.schedule == schedule and b.forced ~= '1' then
      remembered = remembered + tonumber(b.state == 'active' and b.limit or b.enqueued)
    end
  end
end
if active < ACTIVE_MAX and known >= KNOWN_MAX and oldest then
  known = known - redis.call('HDEL', BACKFILLS, oldest)
end
if active >= ACTIVE_MAX or known >= KNOWN_MAX then return { 'FULL', whole(now) } end
if is_forced ~= '1' and remembered + tonumber(limit) > tonumber(memory) then return { 'CAPPED', whole(now) } end
local number = whole(raise(keys.schedule_sets, '#backfills', 0))
redis.call('HSET', BACKFILLS, backfill, backfill_text({ state = 'active', cursor = cursor_ms, enqueued = '0',
  skipped = '0', updated = whole(now), limit = limit, number = number, forced = is_forced, schedule = schedule,
  note = '', json = json }))
tell('backfill', schedule)
return { 'ADDED', whole(now) }
