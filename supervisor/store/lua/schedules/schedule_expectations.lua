-- Find schedules that break what they promise about their runs, or keep it again, and settle what the caller has told.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       limit          at most so many are answered
--       items...       member, score: as answered before, and told since
-- Includes  term
--           live
--
-- Returns  now_ms, how many schedules are late, then member, score, since_ms and ok_ms for each of those to tell:
--          <schedule>   no run of it ended ok for as long as it expects, counted from since_ms. ok_ms: its last success, or 0
--          <run>        it has not ended ok in time
--          +<schedule>  it was late, and keeps its promises again
--
-- A repeated call answers the same: nothing is settled before it was told. What is paused or completed is silent, and
-- counts anew from when it goes on.
local LATE_MAX = 1000
if not_whole(limit) or (#ARGV - FIRST + 1) % 2 ~= 0 then return refuse('limit and items of 2 fields') end
local now, promised = now_ms(), keys.schedule_promised
redis.call('HLEN', keys.schedule_expected) -- raises if the key is not ours: nothing would be expected any more

-- What the schedule of a run is called now.
local function name_of(schedule)
  local _, name = live_lines(schedule)
  return name
end

-- What was told: it is late from now on, or no more.
local function settle(member)
  local schedule, nominal = string.match(member, '^([^@]+)@(%d+)$')
  if not schedule and string.sub(member, 1, 1) ~= '+' then
    redis.call('ZADD', promised, LATE_MS, member)
    return
  end
  redis.call('ZREM', promised, member)
  schedule = schedule and name_of(schedule)
  local of = schedule and expected_of(schedule)
  if of and tonumber(nominal) > of.ok_nominal then
    of.late = math.max(of.late, tonumber(nominal))
    expected_put(schedule, of)
    redis.call('ZADD', promised, LATE_MS, '!' .. schedule)
  elseif of then
    redis.call('ZADD', promised, whole(now), '+' .. schedule)
  end
end
for i = FIRST, #ARGV, 2 do
  local of = expected_of(ARGV[i])
  if tonumber(redis.call('ZSCORE', promised, ARGV[i]) or '') == tonumber(ARGV[i + 1]) then
    settle(ARGV[i])
  elseif of and of.ok >= tonumber(ARGV[i + 1]) then -- it had its success while that it is late was told
    redis.call('ZADD', promised, whole(now), '+' .. ARGV[i])
  end
end

local function is_silent(schedule)
  return is_paused(schedule, now) or counters(redis.call('HGET', keys.schedule_state, schedule) or '')[11] > 0
end

local late = 0
for _, member in ipairs(redis.call('ZRANGEBYSCORE', promised, LATE_MS, LATE_MS, 'LIMIT', 0, LATE_MAX)) do
  local schedule = string.gsub(member, '^!', '')
  local of = expected_of(schedule)
  if not of then
    redis.call('ZREM', promised, member)
  elseif is_silent(schedule) then
    expect_anew(schedule, now)
  else
    late = late + 1
  end
end

local reply = { whole(now), whole(late) }
local due = redis.call('ZRANGEBYSCORE', promised, 0, whole(now), 'WITHSCORES', 'LIMIT', 0, limit) -- below 0: of a hand
for i = 1, #due, 2 do
  local member, n = due[i], #reply
  local schedule, of_run = string.match(member, '^%+?([^@]+)(@?)')
  schedule = of_run == '@' and name_of(schedule) or schedule
  local of = expected_of(schedule)
  if not of then
    redis.call('ZREM', promised, member)
  elseif member == schedule and is_silent(schedule) then
    expect_anew(schedule, now)
  else
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = member, due[i + 1], whole(of.since), whole(of.ok)
  end
end
return reply
