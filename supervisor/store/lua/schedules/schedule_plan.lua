-- Put schedules into the plan, or out of it, as the leader decided from what it read.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       items...       schedule, revision, mark_ms, score, pause, next_ms, new_mark_ms, wait, set_pause, completed,
--                      invalid:
--                      once for each item. The first five are what the caller saw; the others what shall be:
--                      next_ms      when to look again; empty: not by time
--                      new_mark_ms  empty: as it is; never later than this server's now
--                      wait         what the end of a run causes; empty: nothing
--                      set_pause    empty: as it is; - to end it; else the pause
--                      completed    empty: as it is; since when in ms, never later than this server's now; 0: not; - to
--                                   delete the schedule if next_ms has passed, or to look again in a minute while a run
--                                   of it is unfinished or waits
--                      invalid      why the definition cannot be used; empty: it can
-- Includes  term
--           lives
--
-- Returns  now_ms, then for each item
--          PLANNED  done
--          MOVED    somebody asked to look again, or planned it, since it was read; nothing written
--          DUP      the watermark is not what the caller saw; nothing written
--          STALE    the definition or the pause changed; nothing written
--          SKEWED   by this server's time the pause has not ended, or the schedule is to be kept; nothing written
--          GONE     there is no definition: it is out of the plan
local FIELDS, AGAIN_MS = 11, 60000
if #ARGV < FIRST or (#ARGV - FIRST + 1) % FIELDS ~= 0 then return refuse('items of 11 fields') end
for i = FIRST, #ARGV, FIELDS do
  local line = table.concat({ ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 5], ARGV[i + 6] }, ' ')
  if not string.match(line, '^%d* %d+ %-?%d* %d* %d*$') then return refuse('item ' .. ARGV[i]) end
end
check_plan()
local now, deleted = now_ms(), 0

-- Nothing but its revision is remembered: adding it again begins a new life.
local function delete(id)
  if redis.call('EXISTS', keys.schedule_buffer(id)) == 1 or #unfinished(id) > 0 then
    redis.call('ZADD', keys.schedule_next, whole(now + AGAIN_MS), id)
    return
  end
  redis.call('HDEL', keys.schedule_live, id)
  redis.call('HDEL', keys.schedule_state, id)
  redis.call('HDEL', keys.schedule_paused, id)
  bury(id, now, true)
  deleted = deleted + 1
end

local function put(key, id, value)
  if value == '' then
    redis.call('HDEL', key, id)
  elseif redis.call('HGET', key, id) ~= value then
    redis.call('HSET', key, id, value)
  end
end

-- The number that planning decides: since when it is completed.
local function note(id, completed)
  local state = redis.call('HGET', keys.schedule_state, id) or ''
  local numbers = counters(state)
  local before = with_counters(state, numbers)
  numbers[11] = completed == '0' and 0 or numbers[11] > 0 and numbers[11] or math.min(tonumber(completed), now)
  local after = with_counters(state, numbers)
  if after ~= before then
    redis.call('HSET', keys.schedule_state, id, after)
  end
end

-- A score as the caller reads it (foreign_moment of wire/codec): whole, and of the years 1 to 9999; nil for others.
local function read_as(score)
  local n = tonumber(score or '')
  if n and n >= -62135596800000 and n < 253402300800000 then return n < 0 and math.ceil(n) or math.floor(n) end
end

local function plan(i)
  local id, seen, mark, planned, pause = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local next_ms, new_mark, wait = ARGV[i + 5], ARGV[i + 6], ARGV[i + 7]
  local set_pause, completed, invalid = ARGV[i + 8], ARGV[i + 9], ARGV[i + 10]
  local revision = moment(string.match(redis.call('HGET', keys.schedule_def, id) or '', '^(%d+)\n%x*\n[^\n]*\n'))
  local score = redis.call('ZSCORE', keys.schedule_next, id)
  if not revision then
    redis.call('ZREM', keys.schedule_next, id)
    return 'GONE'
  end
  if revision ~= seen or (redis.call('HGET', keys.schedule_paused, id) or '') ~= pause then return 'STALE' end
  if (moment(redis.call('HGET', keys.schedule_mark, id)) or '0') ~= mark then return 'DUP' end
  if read_as(score) ~= tonumber(planned) then return 'MOVED' end
  local ends = set_pause == '-' and string.match(pause, '"until_ms"%s*:%s*(%d+)') or completed == '-' and next_ms
  if ends and ends ~= '' and tonumber(ends) > now then return 'SKEWED' end
  if completed == '-' then
    delete(id)
    return 'PLANNED'
  end
  if new_mark ~= '' then
    -- The caller's clock may be ahead: by this one's, a watermark is never in the future.
    local latest = math.min(tonumber(new_mark), now)
    redis.call('HSET', keys.schedule_mark, id, whole(math.max(tonumber(mark), latest)))
  end
  put(keys.schedule_wait, id, wait)
  put(keys.schedule_invalid, id, invalid ~= '' and revision .. '\n' .. invalid or '')
  if set_pause ~= '' then
    put(keys.schedule_paused, id, set_pause == '-' and '' or set_pause)
    expect_anew(id, now)
    count_failures_anew(id)
  end
  if completed ~= '' then
    note(id, completed)
  end
  if next_ms == '' then
    redis.call('ZREM', keys.schedule_next, id)
  else
    redis.call('ZADD', keys.schedule_next, next_ms, id)
  end
  return 'PLANNED'
end

local reply = { whole(now) }
for i = FIRST, #ARGV, FIELDS do
  reply[#reply + 1] = plan(i)
end
if deleted > 0 then
  purge(now, 3)
end
return reply
