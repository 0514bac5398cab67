-- Library: unfinished runs of a schedule, what the end of one causes there, and the numbers of a schedule's state.
-- Includes  limits
-- Those of `lines`, a queue and an id each, that are unfinished runs: what is gone or dead holds nothing up.
local function unfinished_of(lines)
  local found = {}
  for line in string.gmatch(lines or '', '[^\n]+') do
    local queue, id = string.match(line, '^(%S+) (.*)$')
    if queue and redis.call('HEXISTS', keys.data(queue), id) == 1
      and not redis.call('ZSCORE', keys.dead(queue), id) then
      found[#found + 1] = line
    end
  end
  return found
end

-- The schedule that made a run, as its envelope says: its id may be anybody's choice. Empty: none; nil: it cannot be read.
local function schedule_of(id, data)
  if not string.find(id, '[@!]') then return '' end -- most runs
  local template, envelope = template_of(data or '')
  local schedule = envelope['schedule']
  return next(template) and (type(schedule) == 'string' and schedule or '') or nil
end

-- Whether the id of a run that its schedule starts beside its due times is free. The schedule's own dead run of it, with
-- `data`, makes room, as if a person dropped it. And how often that was begun.
local function is_vacant(queue, id, schedule, data)
  if not data then return true, 0 end
  local spent = spent_of(queue, id)
  return schedule_of(id, data) == schedule
    and drop_dead(queue, HISTORY_MAX, id, data, 'its schedule starts a new run of this id'), spent
end

-- Names of a run's job and schedule, for people; empty where its envelope cannot be read, or has none.
local function job_and_schedule(data)
  local template, envelope = template_of(data)
  local function name(value) return type(value) == 'string' and string.sub(value, 1, 255) or '' end
  return name(template['job']), name(envelope['schedule'])
end

-- When a pause ends by itself; nil: not.
local function end_of(paused)
  return natural(string.match(paused or '', '"until_ms"%s*:%s*(%d+)'))
end

-- Until when what was due may be undecided, and is owed once the pause is over; nil: nothing is.
local function due_of(paused)
  return natural(string.match(paused or '', '"due_ms"%s*:%s*(%d+)'))
end

local function with_due(paused, due)
  return due and not due_of(paused) and string.sub(paused, 1, -2) .. ',"due_ms":' .. whole(due) .. '}' or paused
end

-- Whether a schedule is paused at `now`: a pause that has ended stays until the leader has looked.
local function is_paused(id, now)
  local paused = redis.call('HGET', keys.schedule_paused, id)
  return paused and (end_of(paused) or math.huge) > now
end

-- Ask the leader to look at a schedule as soon as it can: a score of 0 or less. Two requests never have the same score,
-- so that an answer to the first does not silence the second. `kind` tells the leader's listener why.
local CHANGES_MAX = 1000
local function evaluate(schedule, kind, now)
  local next = keys.schedule_next
  local score = tonumber(redis.pcall('ZSCORE', next, schedule) or '1')
  redis.pcall('ZADD', next, whole(score and score <= 0 and score - 1 or -now), schedule)
  redis.pcall('XADD', keys.schedule_changes, 'MAXLEN', '~', CHANGES_MAX, '*', 'kind', kind, 'schedule', schedule)
end

-- The numbers in the first line of a schedule's state, by their places:
-- 1 fired, 2 skipped, 3 missed, 4 buffered, 5 dropped, 6 replaced: how often
-- 7 failed runs in a row, 8 how many wait in the buffer, 9 until when the run that is asked to stop may take
-- 10 when the run after the end of the last one is due, 11 when the schedule was completed, 12 whether its initial run was,
--    or 2: not yet, in a life that began after one that was completed
local COUNTERS = 12
local function counters(state)
  local found = {}
  for n in string.gmatch(string.match(state or '', '^[^\n]*'), '%d+') do
    found[#found + 1] = natural(n) or 0 -- as the leader reads them
  end
  for n = #found + 1, COUNTERS do
    found[n] = 0
  end
  return found
end

-- The state with its numbers replaced.
local function with_counters(state, numbers)
  local words = {}
  for n = 1, COUNTERS do
    words[n] = whole(numbers[n])
  end
  return table.concat(words, ' ') .. (string.match(state or '', '\n.*$') or '')
end

-- What the end of a run causes where its schedule waits for that: `c<ms>` another run so much later, `f<n>` a pause
-- after n failed runs in a row; and what is buffered may start. `F<n>` is `f<n>` where no unfinished runs are listed.
local function live_ended(schedule, outcome)
  local state, wait = keys.schedule_state, redis.pcall('HGET', keys.schedule_wait, schedule)
  local is_asked = redis.pcall('EXISTS', keys.schedule_buffer(schedule)) == 1
  if type(wait) == 'string' then
    local packed = redis.pcall('HGET', state, schedule)
    local numbers = counters(type(packed) == 'string' and packed or '')
    local delay, failures = string.match(wait, 'c(%d+)'), string.match(wait, '[fF](%d+)')
    if outcome == 'dead' or outcome == 'ok' then
      numbers[7] = outcome == 'dead' and numbers[7] + 1 or 0
    end
    if delay then
      numbers[10] = now_ms() + tonumber(delay)
    end
    redis.pcall('HSET', state, schedule, with_counters(type(packed) == 'string' and packed or '', numbers))
    is_asked = is_asked or delay ~= nil or (failures ~= nil and numbers[7] >= tonumber(failures))
  end
  if is_asked then
    evaluate(schedule, 'ended', now_ms())
  end
end

-- Unfinished runs of `schedule`, and what it is called now: one that was renamed leaves `>` and its new id, for the runs
-- that began under the old one. Not all of them are listed, so that it outlives the last one that is; see purge in lives.
local function live_lines(schedule)
  local live, former = keys.schedule_live, {}
  local lines = schedule ~= '' and redis.pcall('HGET', live, schedule)
  while type(lines) == 'string' and string.sub(lines, 1, 1) == '>' and #former < 8 do
    former[#former + 1] = schedule
    schedule = string.sub(lines, 2)
    lines = redis.pcall('HGET', live, schedule)
  end
  return lines, schedule, former
end

-- A run that is in no list ended: its id says whose failure it was, if that schedule counts by ids. Extra runs, and runs
-- from before a new name, do not count.
local function live_unlisted(schedule, outcome)
  local wait = schedule and redis.pcall('HGET', keys.schedule_wait, schedule)
  if type(wait) == 'string' and string.find(wait, 'F', 1, true) then
    live_ended(schedule, outcome)
  end
end

-- The schedule that a definition follows, and for which outcome; nil for none, as mostly. Its fields are sorted, so this
-- is the first, and the rest, of up to 64 KiB, is not read for each of a hundred followers.
local function followed_by(json)
  local after = string.match(json or '', '^{"after":(%b{})')
  if after then
    return string.match(after, '"schedule":"([^"]*)"'), string.match(after, '"outcome":"([^"]*)"') or 'ok'
  end
end

-- What a schedule was called before, the latest name first, one a line; see keep_name in lives.
local names_of = {}
local function former_names(schedule)
  local names = names_of[schedule] or redis.pcall('GET', keys.ran(schedule .. '@<'))
  names_of[schedule] = type(names) == 'string' and names or ''
  return names_of[schedule]
end

-- Whether a run is remembered: also as that of the same time, or with the same key, of a former name of its schedule.
local function has_run(run)
  if redis.call('EXISTS', keys.ran(run)) == 1 then return true end
  local schedule, rest = string.match(run, '^([^@!]+)([@!].*)$')
  for name in string.gmatch(schedule and former_names(schedule) or '', '[^\n]+') do
    if redis.call('EXISTS', keys.ran(name .. rest)) == 1 then return true end
  end
  return false
end

-- Let `name`, which follows `schedule`, wait for its turn at this nominal time if the end is one that it asks for. A run
-- that failed may be requeued and end once more: then it is remembered what was let through.
local function let_follow(name, schedule, nominal, outcome)
  local waiting_max, memory_ms = 1000, 604800000
  local definition = string.match(redis.call('HGET', keys.schedule_def, name) or '', '^%d+\n%x+\n[^\n]*\n(.*)$')
  local followed, asked = followed_by(definition)
  if followed ~= schedule or asked ~= outcome and asked ~= 'any' then return end
  local now, run = now_ms(), name .. '@' .. nominal
  local is_skipped = is_paused(name, now) and cjson.decode(definition)['on_resume'] ~= 'catchup'
  local state = redis.call('HGET', keys.schedule_state, name) or ''
  local numbers = counters(state)
  local floor = tonumber(redis.pcall('GET', keys.ran(name .. '@'))) or 0 -- see keep_floor in lives
  if is_skipped or numbers[11] > 0 or tonumber(nominal) <= floor or has_run(run) then return end
  if numbers[8] >= waiting_max then
    numbers[5] = numbers[5] + 1
  else
    redis.call('RPUSH', keys.schedule_buffer(name), nominal)
    numbers[8] = numbers[8] + 1
  end
  redis.call('HSET', keys.schedule_state, name, with_counters(state, numbers))
  if outcome == 'failed' then
    redis.call('SET', keys.ran(run), whole(now), 'PX', memory_ms)
  end
  evaluate(name, 'ended', now)
end

-- The run of `schedule` for a nominal time ended, with all runs below it: those that follow it may be due (adr/0052).
local FOLLOWED = { ok = 'ok', dead = 'failed', expired = 'failed', rejected = 'failed', cancelled = 'cancelled' }
local function followed_end(schedule, nominal, outcome)
  local followers = FOLLOWED[outcome] and natural(nominal) and redis.pcall('HGET', keys.schedule_after, schedule)
  for name in string.gmatch(type(followers) == 'string' and followers or '', '[^\n]+') do
    pcall(let_follow, name, schedule, nominal, FOLLOWED[outcome]) -- like all that an end causes, it never stops the end
  end
end

-- What a schedule expects of its runs, `schedule:expected`: every_ms since_ms ok_ms ok_nominal late_nominal. When to look
-- lies in `schedule:promised`: its id, when its next success is due; the id of a run, until when it must have ended;
-- `+id`, that it was late and is no more. At LATE_MS, which ones are late: id, no success in time; `!id`, a run.
local LATE_MS = '9007199254740991'
local function expected_of(schedule)
  local every, since, ok, ok_nominal, late =
    string.match(inform('HGET', keys.schedule_expected, schedule) or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  every, since, ok, ok_nominal, late = natural(every), natural(since), natural(ok), natural(ok_nominal), natural(late)
  return every and since and ok and ok_nominal and late
    and { every = every, since = since, ok = ok, ok_nominal = ok_nominal, late = late }
end

local function expected_put(schedule, of)
  inform('HSET', keys.schedule_expected, schedule, table.concat({ whole(of.every), whole(of.since), whole(of.ok),
    whole(of.ok_nominal), whole(of.late) }, ' '))
end

-- Count from now what a schedule expects: while it was paused or completed, it expected nothing.
local function expect_anew(schedule, now)
  local of, promised = expected_of(schedule), keys.schedule_promised
  if of then
    of.since, of.late = now, 0
    expected_put(schedule, of)
    inform('ZREM', promised, schedule, '!' .. schedule, '+' .. schedule)
    if of.every > 0 then
      inform('ZADD', promised, whole(now + of.every), schedule)
    end
  end
end

-- A run of `schedule` ended ok. One that is too late already stays in the list until that is told.
local function keep_promise(schedule, id)
  local of = expected_of(schedule)
  if not of then return end
  local now, promised = now_ms(), keys.schedule_promised
  local nominal = natural(string.match(id, '^[^@]+@(%d+)')) or 0
  local is_over = redis.call('ZSCORE', promised, schedule)
  is_over = is_over and tonumber(is_over) == tonumber(LATE_MS)
  of.since, of.ok, of.ok_nominal = now, now, math.max(of.ok_nominal, nominal)
  if of.late > 0 and nominal >= of.late then
    redis.call('ZREM', promised, '!' .. schedule)
    of.late, is_over = 0, true
  end
  if of.every > 0 then
    redis.call('ZADD', promised, whole(now + of.every), schedule)
  end
  if tonumber(redis.call('ZSCORE', promised, id) or now) > now then
    redis.call('ZREM', promised, id)
  end
  if is_over then
    redis.call('ZADD', promised, whole(now), '+' .. schedule)
  end
  expected_put(schedule, of)
end

-- A run ended: the next one of its `schedule` may start. Empty: it is no schedule's, whatever its id, which callers choose. nil:
-- its envelope is gone, and the schedule follows from the id (see schedule_of). Of the outcomes, ok and dead say something
-- about the job. Like history, what this causes never stops the end itself.
local function live_remove(schedule, id, outcome)
  schedule = schedule or string.match(id, '^([^@!]+)[@!]') or ''
  if schedule == '' then return end -- most runs
  local own = string.match(id, '^([^@!#]+)@%d+$') or string.match(id, '^([^@!]+)!initial$')
  local lines
  lines, schedule = live_lines(schedule)
  if outcome == 'ok' and string.find(id, '^[^@!]+[@!][^/]*$') then -- no child
    pcall(keep_promise, schedule, id)
  elseif outcome ~= 'dead' and outcome ~= 'expired' and outcome ~= 'rejected' then -- its end was asked for
    redis.pcall('ZREM', keys.schedule_promised, id)
  end
  local nominal = string.match(id, '^[^@!#]+@(%d+)$')
  if nominal and redis.pcall('HEXISTS', keys.tally(id), 'after') ~= 1 then -- else the last run below it tells
    followed_end(schedule, nominal, outcome or 'cancelled')
  end
  if type(lines) ~= 'string' then return live_unlisted(own, outcome) end
  local gone, from, to = nil, string.find(lines, ' ' .. id, 1, true) -- of up to 100,000 lines, at each end: not taken apart
  while from do
    local after = string.byte(lines, to + 1)
    if not after or after == 10 then -- else it is the beginning of another id
      gone = string.match(string.sub(lines, math.max(from - 64, 1), from - 1), '[^\n]*$')
      to = from - #gone - 1
      lines = string.sub(lines, 1, after and to or math.max(to - 1, 0)) .. string.sub(lines, from + #id + 2)
    end
    from, to = string.find(lines, ' ' .. id, to + 1, true)
  end
  if lines == '' then
    redis.call('HDEL', keys.schedule_live, schedule)
  elseif gone then
    redis.call('HSET', keys.schedule_live, schedule, lines)
  end
  if gone then
    redis.pcall('HDEL', keys.cancel(gone), id)
    live_ended(schedule, outcome)
  else
    live_unlisted(own, outcome)
  end
end
