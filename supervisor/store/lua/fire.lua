-- Decide what schedules owe: enqueue runs, and advance watermarks, in one step.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       skew_limit_ms  how far ahead of this server's time a due time may be
--       log_cap        how many decisions are remembered
--       items...       what, schedule, revision, mark_ms, nominal_ms, new_mark_ms, next_ms, missed, policy, id, queue,
--                      data: once for each item
--                      what     due: this nominal time is due. missed: none runs, the watermark advances
--                               start: the first that waits in the buffer may start. force: the same, and what was asked
--                               to stop has had its time. drop: the first that waits is too old. initial: the run that
--                               a new schedule begins with
--                      next_ms  when to look again; empty: not by time
--                      missed   how many due times pass without a run, and letters that say why
--                      policy   overlap, max_running, buffer_limit, cancel_grace_ms, max_runs, what the end of a run
--                               causes, for how long a completed schedule is kept; - is none
--                      id, queue, data  of the run; empty for missed and drop
--
-- Includes  clock
--           term
--           queue
--           state
--
-- Returns  now_ms, then code and watermark for each item
--          FIRED      enqueued
--          SKIPPED    as many runs as may be are unfinished: decided, nothing enqueued
--          BUFFERED   the same, and this nominal time waits for one of them to end
--          DROPPED    the same, and the buffer is full; or what waited was too old
--          REPLACED   what waited gave way to a newer nominal time
--          MISSED     decided: the watermark advanced, nothing was to be enqueued
--          COMPLETED  it had all the runs it may have; it is out of the plan
--          HELD       what waits must go on waiting; nothing written
--          DUP        the watermark, or what waits, is not what the caller saw; nothing written. A watermark equal to the
--                     new one: the caller's own earlier attempt, whose reply was lost
--          STALE      the definition changed or is gone; nothing written
--          PAUSED     nothing written
--          SKEWED     the due time is too far ahead of this server's time; nothing written
--          error FENCED <epoch>: the term is not the current one; nothing written
--
-- Does not ask whether the lease has run out: a term that nobody replaced cannot conflict.
-- Reads everything first, decides, and writes at the end with as few commands as possible: 250 items in a few ms.
-- A request to look at the schedule (a score of 0 or less in the plan) is never overwritten here.
local FIELDS, FIRST, HISTORY = 12, 5, 10000
local WHAT = { due = true, missed = true, start = true, force = true, drop = true, initial = true }
local refused = fence(KEYS[1] .. 'lease', ARGV[1], ARGV[2])
if refused then
  return refused
end
if not_whole(3, 4) or #ARGV < FIRST or (#ARGV - FIRST + 1) % FIELDS ~= 0 then
  return refuse('items of 12 fields')
end
local S = KEYS[1] .. 'schedule:'
local names, place, policies, checked = {}, {}, {}, {}
local function policy_of(text)
  local overlap, running, buffer, grace, runs, wait, keep =
    string.match(text, '^(%l[%l_]*) (%d+) (%d+) (%d+) (%S+) (%S+) (%S+)$')
  policies[text] = overlap and {
    overlap = overlap, running = tonumber(running), buffer = tonumber(buffer), grace = tonumber(grace),
    runs = tonumber(runs), wait = wait == '-' and '' or wait, keep = tonumber(keep),
    is_tracked = overlap ~= 'allow' or wait ~= '-', is_delayed = string.find(wait, 'c', 1, true) ~= nil,
  }
  return policies[text]
end

for i = FIRST, #ARGV, FIELDS do
  local name, has_run = ARGV[i + 1], ARGV[i] ~= 'missed' and ARGV[i] ~= 'drop'
  local numbers = table.concat({ ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6], ARGV[i + 7] }, ' ')
  if not WHAT[ARGV[i]] or not string.match(numbers, '^%d+ %d+ %d+ %d+ %d* %d+%l*$')
    or not (policies[ARGV[i + 8]] or policy_of(ARGV[i + 8])) or (has_run and not is_head(ARGV[i + 11])) then
    return refuse('item ' .. name)
  end
  if has_run then
    local kind = ARGV[i + 10] .. ' ' .. string.sub(ARGV[i + 11], 1, 2)
    if not checked[kind] then
      check_types(ARGV[i + 10], string.sub(ARGV[i + 11], 1, 2))
      checked[kind] = true
    end
  end
  if not place[name] then
    names[#names + 1] = name
    place[name] = #names
  end
end

-- These raise, before the first write, if a key is not ours.
redis.call('XLEN', S .. 'log')
redis.call('HLEN', S .. 'wait')
local marks = redis.call('HMGET', S .. 'mark', unpack(names))
local defs = redis.call('HMGET', S .. 'def', unpack(names))
local lives = redis.call('HMGET', S .. 'live', unpack(names))
local states = redis.call('HMGET', S .. 'state', unpack(names))
local pauses = redis.call('HLEN', S .. 'paused') > 0 and redis.call('HMGET', S .. 'paused', unpack(names)) or {}
local scores = redis.call('ZMSCORE', S .. 'next', unpack(names))
local now, limit = now_ms(), tonumber(ARGV[3])
local running, packed, wanted = {}, {}, {} -- by place: live runs once asked for, state once touched, score once decided
local lists, entering, log = {}, {}, {}

-- Unfinished runs of a schedule, each checked against its record: what is gone or dead holds nothing up.
local function live(n)
  if running[n] then
    return running[n]
  end
  local found = {}
  for line in string.gmatch(lives[n] or '', '[^\n]+') do
    local queue, id = string.match(line, '^(%S+) (.*)$')
    if queue and redis.call('HEXISTS', q(queue, 'data'), id) == 1
      and not redis.call('ZSCORE', q(queue, 'dead'), id) then
      found[#found + 1] = line
    end
  end
  running[n] = found
  return found
end

local function state(n)
  packed[n] = packed[n] or state_open(states[n] or '')
  return packed[n]
end

-- End a run that must give way. One that nobody works on ends now, and so does one whose time is over: its worker is
-- told, and what it still reports is refused. Else its worker is asked. Returns whether the run is gone.
local function give_way(line, is_forced)
  local queue, id = string.match(line, '^(%S+) (.*)$')
  local token = redis.call('HGET', q(queue, 'run'), id)
  if token then
    redis.call('HSET', q(queue, 'cancel'), id, (is_forced and 'kill|' or 'stop|') .. token .. '|' .. whole(now))
    redis.call('PEXPIRE', q(queue, 'cancel'), 86400000)
    if not is_forced then
      return false
    end
  end
  local session, attempt, fetched = string.match(token or '', '^(.*)|(%d+)|(%d+)$')
  local job = string.match(redis.call('HGET', q(queue, 'data'), id) or '', '"job":"([^"|]*)"')
  redis.call('HDEL', q(queue, 'run'), id)
  redis.call('HDEL', q(queue, 'data'), id)
  redis.call('HDEL', q(queue, 'att'), id)
  redis.call('HDEL', q(queue, 'err'), id)
  history_add(queue, HISTORY, table.concat({ id, 'replaced', attempt or '0', session or '', fetched or whole(now),
    whole(now), job or '', 'a newer run of its schedule took its place' }, '|'))
  count_add(queue, 'replaced', 1)
  return true
end

-- Make room for one run among the live ones, oldest first; whether there is room now.
local function make_room(n, policy, is_forced)
  local kept, excess = {}, #live(n) - policy.running + 1
  for _, line in ipairs(live(n)) do
    if excess > 0 and give_way(line, is_forced) then
      excess = excess - 1
      state_add(state(n), 6, 1)
    else
      kept[#kept + 1] = line
    end
  end
  running[n] = kept
  return excess <= 0
end

local function complete(n, policy)
  local numbers = state_numbers(state(n))
  numbers[11] = numbers[11] > 0 and numbers[11] or now
  wanted[n] = policy.keep and whole(now + policy.keep) or ''
end

local function enqueue(n, i, policy)
  local id, queue, data = ARGV[i + 9], ARGV[i + 10], ARGV[i + 11]
  if create(queue, id, data) then
    local list = ready(queue, data)
    if not lists[list] then
      lists[list] = { queue = queue, letter = string.sub(data, 1, 1) }
    end
    table.insert(lists[list], id)
  end
  entering[queue] = true
  if policy.is_tracked then
    local lines = live(n)
    lines[#lines + 1] = queue .. ' ' .. id
  end
end

local function buffer(n, i)
  redis.call('RPUSH', S .. 'buf:' .. ARGV[i + 1], ARGV[i + 4])
  state_add(state(n), 8, 1)
  return 'BUFFERED'
end

-- What becomes of a due run while as many as may be are unfinished; FIRED if it need not wait.
local function overlapping(n, i, policy)
  local how = policy.overlap
  if how == 'allow' then
    return 'FIRED'
  end
  local waiting = (how == 'buffer_one' or how == 'buffer_all') and state_numbers(state(n))[8] or 0
  if #live(n) < policy.running and waiting == 0 then
    return 'FIRED'
  end
  if how == 'terminate_other' then
    make_room(n, policy, true)
    return 'FIRED'
  elseif how == 'cancel_other' then
    if make_room(n, policy, false) then
      return 'FIRED'
    end
    local numbers = state_numbers(state(n))
    numbers[6], numbers[8] = numbers[6] + numbers[8], 0 -- a newer nominal time takes the place of the one that waits
    numbers[9] = numbers[9] > 0 and numbers[9] or now + policy.grace
    redis.call('DEL', S .. 'buf:' .. ARGV[i + 1])
    return buffer(n, i)
  elseif how == 'buffer_one' or how == 'buffer_all' then
    if waiting < policy.buffer then
      return buffer(n, i)
    end
    return how == 'buffer_one' and 'SKIPPED' or 'DROPPED'
  end
  return 'SKIPPED'
end

-- Take the first that waits out of the buffer, and decide it by the policy as it is now.
local function waiting(n, i, policy)
  local what, key, how = ARGV[i], S .. 'buf:' .. ARGV[i + 1], policy.overlap
  local numbers = state_numbers(state(n))
  if redis.call('LINDEX', key, 0) ~= ARGV[i + 4] then
    return 'DUP'
  end
  local code = 'FIRED'
  if what == 'drop' then -- not before its turn has come
    code = (how == 'allow' or #live(n) < policy.running) and 'DROPPED' or 'HELD'
    if code == 'HELD' then
      return code
    end
  elseif policy.runs and numbers[1] >= policy.runs then
    code = 'COMPLETED'
  elseif how == 'cancel_other' and redis.call('LLEN', key) > 1 then
    code = 'REPLACED'
  elseif how ~= 'allow' and #live(n) >= policy.running then
    if what == 'force' or how == 'terminate_other' then
      make_room(n, policy, true)
    elseif how == 'skip' then
      code = 'SKIPPED'
    else
      return 'HELD'
    end
  end
  redis.call('LPOP', key)
  numbers[8] = math.max(numbers[8] - 1, 0)
  if code == 'COMPLETED' then
    redis.call('DEL', key)
    numbers[8] = 0
    complete(n, policy)
  end
  if numbers[8] == 0 then
    numbers[9] = 0
  end
  return code
end

local COUNTED = { FIRED = 1, SKIPPED = 2, BUFFERED = 4, DROPPED = 5, REPLACED = 6 }
local LETTER = { FIRED = 'F', SKIPPED = 'S', BUFFERED = 'B', DROPPED = 'D', REPLACED = 'R' }

-- Write down what was decided about one nominal time, and about those that were missed with it.
local function note(n, i, code, letter)
  local st, nominal, mark, revision = state(n), ARGV[i + 4], ARGV[i + 3], ARGV[i + 2]
  local missed, why, is_after = '0', '', false
  if ARGV[i + 7] ~= '0' then
    missed, why = string.match(ARGV[i + 7], '^(%d+)(%l*)$')
    is_after = tonumber(ARGV[i + 5]) > tonumber(nominal) -- those missed are newer than the one that runs
    state_add(st, 3, tonumber(missed))
    if not is_after then
      state_stretch(st, 'M' .. why, mark, nominal, tonumber(missed), revision, mark, now)
    end
  end
  if COUNTED[code] then
    state_add(st, COUNTED[code], 1)
    state_stretch(st, letter, nominal, nominal, 1, revision, (missed == '0' and letter ~= 'U') and mark or '', now)
  end
  if is_after then
    state_stretch(st, 'M' .. why, nominal, ARGV[i + 5], tonumber(missed), revision, mark, now)
  end
  local has_run = code == 'FIRED' or code == 'INITIAL'
  log[#log + 1] = table.concat({ ARGV[i + 1], nominal, ARGV[1], has_run and ARGV[i + 9] or '-', code, missed,
    whole(now) }, ' ')
end

-- A nominal time, or some that were missed, by the schedule's trigger.
local function due(n, i, policy)
  local nominal, new_mark, mark = tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]), tonumber(marks[n] or '0')
  if (marks[n] or '0') ~= ARGV[i + 3] or nominal <= mark or new_mark <= mark then
    return 'DUP'
  end
  if math.max(nominal, new_mark) > now + limit then
    return 'SKEWED'
  end
  if policy.runs and state_fired(state(n)) >= policy.runs then
    complete(n, policy)
    return 'COMPLETED'
  end
  local code = ARGV[i] == 'missed' and 'MISSED' or overlapping(n, i, policy)
  marks[n] = ARGV[i + 5]
  wanted[n] = ARGV[i + 6]
  if code == 'FIRED' then
    enqueue(n, i, policy)
  end
  note(n, i, code, LETTER[code])
  if code == 'BUFFERED' and policy.overlap == 'cancel_other' then
    local force = state_numbers(state(n))[9]
    wanted[n] = wanted[n] ~= '' and whole(math.min(tonumber(wanted[n]), force)) or whole(force)
  end
  if policy.is_delayed and state_numbers(state(n))[10] <= new_mark then
    state_numbers(state(n))[10] = 0
  end
  if (policy.runs and state_fired(state(n)) >= policy.runs) or (ARGV[i + 6] == '' and not policy.is_delayed) then
    complete(n, policy)
  end
  return code
end

local function initial(n, i, policy)
  local numbers = state_numbers(state(n))
  if numbers[12] == 1 then
    return 'DUP'
  end
  numbers[12] = 1
  enqueue(n, i, policy)
  note(n, i, 'INITIAL')
  state_stretch(state(n), 'I', ARGV[i + 4], ARGV[i + 4], 1, ARGV[i + 2], '', now)
  return 'FIRED'
end

local function decide(i)
  local n, policy = place[ARGV[i + 1]], policies[ARGV[i + 8]]
  if not defs[n] or string.match(defs[n], '^%d+') ~= ARGV[i + 2] then
    return 'STALE'
  end
  if pauses[n] then
    return 'PAUSED'
  end
  if ARGV[i] == 'initial' then
    return initial(n, i, policy)
  end
  if ARGV[i] == 'due' or ARGV[i] == 'missed' then
    return due(n, i, policy)
  end
  local code = waiting(n, i, policy)
  if code == 'FIRED' then
    enqueue(n, i, policy)
    note(n, i, code, 'U')
    if policy.runs and state_fired(state(n)) >= policy.runs then
      complete(n, policy)
    end
  elseif code ~= 'DUP' and code ~= 'HELD' then
    note(n, i, code, LETTER[code])
  end
  return code
end

local reply = { whole(now) }
for i = FIRST, #ARGV, FIELDS do
  reply[#reply + 1] = decide(i)
  reply[#reply + 1] = marks[place[ARGV[i + 1]]] or '0'
end

-- What was decided, written with one command for each key.
local new_marks, new_states, new_scores, over, new_lives, idle = {}, {}, {}, {}, {}, {}
for n, name in ipairs(names) do
  if packed[n] then
    new_states[#new_states + 1] = name
    new_states[#new_states + 1] = state_close(packed[n])
  end
  if wanted[n] then
    new_marks[#new_marks + 1] = name
    new_marks[#new_marks + 1] = marks[n] or '0'
    if scores[n] and tonumber(scores[n]) <= 0 then
      wanted[n] = nil -- somebody asked to look at it since it was planned
    elseif wanted[n] == '' then
      over[#over + 1] = name
    else
      new_scores[#new_scores + 1] = wanted[n]
      new_scores[#new_scores + 1] = name
    end
  end
  if running[n] then
    local lines = table.concat(running[n], '\n')
    if lines == '' then
      idle[#idle + 1] = name
    elseif lines ~= lives[n] then
      new_lives[#new_lives + 1] = name
      new_lives[#new_lives + 1] = lines
    end
  end
end
local function write(command, key, values)
  if #values > 0 then
    redis.call(command, key, unpack(values))
  end
end
write('HSET', S .. 'mark', new_marks)
write('HSET', S .. 'state', new_states)
write('ZADD', S .. 'next', new_scores)
write('ZREM', S .. 'next', over)
write('HSET', S .. 'live', new_lives)
write('HDEL', S .. 'live', idle)
local waits = redis.call('HLEN', S .. 'wait')
for i = FIRST, #ARGV, FIELDS do
  local wait = policies[ARGV[i + 8]].wait
  if reply[2 + (i - FIRST) / FIELDS * 2] == 'FIRED' and (wait ~= '' or waits > 0) then
    if wait == '' then
      redis.call('HDEL', S .. 'wait', ARGV[i + 1])
    else
      redis.call('HSET', S .. 'wait', ARGV[i + 1], wait)
    end
  end
end
for queue in pairs(entering) do
  redis.call('SADD', KEYS[1] .. 'queues', queue)
end
for list, ids in pairs(lists) do
  redis.call('RPUSH', list, unpack(ids))
  count_add(ids.queue, 'in', #ids)
  ring(ids.queue, ids.letter, math.min(#ids, 4)) -- whoever wakes rings on while work is left
end
for _, line in ipairs(log) do
  redis.call('XADD', S .. 'log', 'MAXLEN', '~', ARGV[4], '*', 'r', line)
end
return reply
