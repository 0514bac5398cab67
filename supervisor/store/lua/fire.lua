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
--
-- Includes  term
--           place
--           state
--
-- Returns  now_ms, then code and watermark for each item
--          FIRED      enqueued; or it ended at once, recorded as a duplicate: another run holds its unique key
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
--          SKEWED     the due time is too far ahead of this server's time, or at_ms is, and the item depends on it;
--                     nothing written
--          error FENCED <epoch>: the term is not the current one; nothing written
--
-- Does not ask whether the lease has run out: a term that nobody replaced cannot conflict.
-- Reads everything first, decides, and writes at the end with as few commands as possible: 250 items in a few ms.
-- A request to look at the schedule (a score of 0 or less in the plan) is never overwritten here.
local WHAT = { due = true, missed = true, start = true, force = true, drop = true, initial = true }
local names, place, shapes, kinds, items, groups = {}, {}, {}, {}, {}, {}
local function shape_of(text)
  local overlap, running, buffer, grace, runs, wait, keep, queue =
    string.match(text, '^(%l[%l_]*) (%d+) (%d+) (%d+) (%S+) (%S+) (%S+) (%S+)$')
  shapes[text] = overlap and {
    overlap = overlap, running = tonumber(running), buffer = tonumber(buffer), grace = tonumber(grace),
    runs = tonumber(runs), wait = wait == '-' and '' or wait, keep = tonumber(keep), queue = queue,
    is_delayed = string.find(wait, 'c', 1, true) ~= nil,
  }
  return shapes[text]
end

-- What the runs of one queue, kind and priority share: where they go, and which of them there are.
local function group_of(queue, data)
  local head = string.sub(data, 1, 2)
  local of = kinds[queue] or { known = {} }
  kinds[queue] = of
  if not of[head] then
    check_types(queue, string.sub(data, 1, 3))
    of[head] = { queue = queue, list = ready(queue, data), letter = string.sub(data, 1, 1), ids = {}, new = {},
      known = of.known, entering = {} }
    groups[#groups + 1] = of[head]
  end
  if header_of(data) and not of.is_limited then
    check_types(queue, string.sub(data, 1, 3))
    of.is_limited = true
  end
  return of[head]
end

local LINE = '^(%l+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)(%l*) (%S+) (%S+)$'
local ENDING = '^(%l+) (%d+) (%d+) (%d+) (%d+) (%-) (%d+)(%l*) (%S+) (%S+)$'

-- Take an item in: its line, its shape and its data; false if it cannot be read.
local function add_item(line, shape, data)
  local what, revision, mark, nominal, new_mark, next, missed, why, name, id = string.match(line, LINE)
  if not what then
    what, revision, mark, nominal, new_mark, next, missed, why, name, id = string.match(line, ENDING)
  end
  local policy, has_run = shapes[shape] or shape_of(shape), what ~= 'missed' and what ~= 'drop'
    and not (what == 'initial' and missed ~= '0')
  if not WHAT[what] or not policy or (has_run and not is_head(data)) then
    return false
  end
  local group = has_run and group_of(policy.queue, data)
  if group then
    group.ids[#group.ids + 1] = id
  end
  local n = place[name]
  if not n then
    n = #names + 1
    names[n], place[name] = name, n
  end
  items[#items + 1] = { what = what, revision = revision, mark = mark, nominal = nominal, new_mark = new_mark,
    next = next ~= '-' and next or '', missed = missed, why = why, name = name, id = id, n = n, policy = policy,
    group = group, data = data }
  return true
end

local LATEST = 100 -- unfinished runs known of a schedule that waits for none
local marks, defs, lives, states, pauses, scores -- by place, as Redis has them
local running, packed, extended, wanted = {}, {}, {}, {} -- by place: live runs, state, and score once they are touched
local log, twins = {}, {}
local now, at, limit, term, is_ahead

local verified = {}
local function verify(queue)
  if not verified[queue] then
    verified[queue] = true
    check_queue(queue)
  end
end

-- Read what is known of the schedules and runs of all items. Raises, before the first write, if a key is not ours.
local function read_schedules(current, skew_ms, asked_ms)
  redis.call('XLEN', keys.schedule_log)
  redis.call('HLEN', keys.schedule_wait)
  redis.call('HLEN', keys.schedule_invalid)
  marks = redis.call('HMGET', keys.schedule_mark, unpack(names))
  defs = redis.call('HMGET', keys.schedule_def, unpack(names))
  lives = redis.call('HMGET', keys.schedule_live, unpack(names))
  states = redis.call('HMGET', keys.schedule_state, unpack(names))
  pauses = redis.call('HLEN', keys.schedule_paused) > 0 and redis.call('HMGET', keys.schedule_paused, unpack(names)) or {}
  scores = redis.call('ZMSCORE', keys.schedule_next, unpack(names))
  now, limit = now_ms(), tonumber(skew_ms)
  is_ahead = tonumber(asked_ms) > now + limit -- the caller's clock is: what it judged by the time is no fact
  at, term = whole(now), current
  for _, item in ipairs(items) do -- what may have to give way lies in these
    for queue in string.gmatch(item.policy.overlap ~= 'allow' and lives[item.n] or '', '(%S+) [^\n]+') do
      verify(queue)
    end
  end
  for _, group in ipairs(groups) do
    verify(group.queue)
    for k, data in ipairs(redis.call('HMGET', keys.data(group.queue), unpack(group.ids))) do
      group.known[group.ids[k]] = data and true or nil
    end
  end
end

-- Make the runs of a group exist that are new.
local function flush(group)
  if #group.new > 0 then
    redis.call('HSET', keys.data(group.queue), unpack(group.new))
    group.new = {}
  end
end

-- Where nothing is held up, no list is checked: the latest runs are enough to find the end of the last one. What is
-- older, or was left behind by a run whose end nobody heard of, leaves the list at its far end.
local function latest(n)
  local found = {}
  for line in string.gmatch(running[n] and '' or lives[n] or '', '%S+ [^\n]+') do
    found[#found + 1] = line
  end
  running[n] = running[n] or found
  while #running[n] >= LATEST do
    table.remove(running[n], 1)
  end
  return running[n]
end

-- Unfinished runs of a schedule, each checked against its record: what is gone or dead holds nothing up.
local function live(n)
  if running[n] then
    return running[n]
  end
  local found = {}
  for line in string.gmatch(lives[n] or '', '[^\n]+') do
    local queue, id = string.match(line, '^(%S+) (.*)$')
    if queue and redis.call('HEXISTS', keys.data(queue), id) == 1
      and not redis.call('ZSCORE', keys.dead(queue), id) then
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

local HISTORY = 10000

-- End a run that must give way. One that nobody works on ends now, and so does one whose time is over: its worker is
-- told, and what it still reports is refused. Else its worker is asked. Returns whether the run is gone.
local function give_way(line, is_forced)
  for _, group in ipairs(groups) do
    flush(group) -- what gives way may be a run of this very batch
  end
  local queue, id = string.match(line, '^(%S+) (.*)$')
  local token = redis.call('HGET', keys.run(queue), id)
  if token then
    redis.call('HSET', keys.cancel(queue), id, (is_forced and 'kill|' or 'stop|') .. token .. '|' .. whole(now))
    redis.call('PEXPIRE', keys.cancel(queue), 86400000)
    if not is_forced then
      return false
    end
  end
  local session, attempt, fetched = string.match(token or '', '^(.*)|(%d+)|(%d+)$')
  local data = redis.call('HGET', keys.data(queue), id) or ''
  local job = string.match(data, '"job":"([^"|]*)"')
  if not token then -- also of one of this very batch, which is not in its list yet: it will be skipped there
    leave(queue, id, place_of(queue, id, data))
  end
  redis.call('HDEL', keys.run(queue), id)
  redis.call('HDEL', keys.data(queue), id)
  redis.call('HDEL', keys.att(queue), id)
  redis.call('HDEL', keys.err(queue), id)
  leave_line(queue, id, data)
  end_limits(queue, id, 'replaced')
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

local function buffer(n, item)
  redis.call('RPUSH', keys.schedule_buffer(item.name), item.nominal)
  state_add(state(n), 8, 1)
  return 'BUFFERED'
end

-- A newer nominal time takes the place of what waits.
local function supersede(n, item)
  local numbers = state_numbers(state(n))
  if numbers[8] > 0 then
    numbers[6], numbers[8] = numbers[6] + numbers[8], 0
    redis.call('DEL', keys.schedule_buffer(item.name))
  end
  return numbers
end

-- What becomes of a due run while as many as may be are unfinished; FIRED if it need not wait.
local function overlapping(n, item, policy)
  local how = policy.overlap
  if how == 'allow' then
    return 'FIRED'
  end
  if how == 'terminate_other' or how == 'cancel_other' then
    local numbers = supersede(n, item)
    if #live(n) < policy.running or make_room(n, policy, how == 'terminate_other') or how == 'terminate_other' then
      numbers[9] = 0
      return 'FIRED'
    end
    numbers[9] = numbers[9] > 0 and numbers[9] or now + policy.grace
    return buffer(n, item)
  end
  local waiting = (how == 'buffer_one' or how == 'buffer_all') and state_numbers(state(n))[8] or 0
  if #live(n) < policy.running and waiting == 0 then
    return 'FIRED'
  end
  if how == 'buffer_one' or how == 'buffer_all' then
    if waiting < policy.buffer then
      return buffer(n, item)
    end
    return how == 'buffer_one' and 'SKIPPED' or 'DROPPED'
  end
  return 'SKIPPED'
end

-- Take the first that waits out of the buffer, and decide it by the policy as it is now.
local function waiting(n, item, policy)
  local what, key, how = item.what, keys.schedule_buffer(item.name), policy.overlap
  local numbers = state_numbers(state(n))
  if redis.call('LINDEX', key, 0) ~= item.nominal then
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

local function enqueue(n, item, policy)
  local group, id = item.group, item.id
  local holder = not group.known[id] and claim(group.queue, id, item.data)
  if holder then -- it ends at once, and what waits for its end is told when all is written
    twins[#twins + 1] = { item = item, holder = holder }
    return
  end
  if not group.known[id] then -- an id names one run
    group.known[id] = true
    group.new[#group.new + 1] = id
    group.new[#group.new + 1] = item.data
    group.entering[#group.entering + 1] = id
    if header_of(item.data) then
      flush(group) -- whoever wants its unique key in this batch looks for it
      replace_older(group.queue, id, item.data)
    end
  end
  group.is_used = true
  if policy.overlap ~= 'allow' or policy.is_delayed then
    local lines = policy.overlap == 'allow' and latest(n) or live(n)
    lines[#lines + 1] = group.queue .. ' ' .. id
  end
end

local COUNTED = { FIRED = 1, SKIPPED = 2, BUFFERED = 4, DROPPED = 5, REPLACED = 6 }
local LETTER = { FIRED = 'F', SKIPPED = 'S', BUFFERED = 'B', DROPPED = 'D', REPLACED = 'R' }

-- Note one more run of a healthy schedule, or its first: all but every decision. Whether it was so.
local function extend(n, item)
  if packed[n] or item.missed ~= '0' then
    return false
  end
  local text, nominal = states[n], tonumber(item.nominal)
  if not text then
    states[n] = '1' .. string.sub(NO_NUMBERS, 2) .. '\nF' .. item.nominal .. ' 0 1 ' .. whole(now - nominal) .. ' '
      .. item.revision
    extended[n] = true
    return true
  end
  local fired, others, from, span, count, revision, tail =
    string.match(text, '^(%d+)( [%d ]*\n)F(%d+) (%d+) (%d+) %-?%d+ (%d+)(.*)$')
  if revision ~= item.revision or tonumber(from) + tonumber(span) ~= tonumber(item.mark) then
    return false
  end
  states[n] = string.format('%.0f%sF%s %.0f %.0f %.0f %s%s', tonumber(fired) + 1, others, from,
    nominal - tonumber(from), tonumber(count) + 1, now - nominal, revision, tail)
  extended[n] = true
  return true
end

-- Write down what was decided about one nominal time, and about those that were missed with it.
local function note(n, item, code, letter)
  local nominal, mark, revision, missed = item.nominal, item.mark, item.revision, item.missed
  local has_run = code == 'FIRED' or code == 'INITIAL'
  log[#log + 1] = item.name .. ' ' .. nominal .. ' ' .. term .. ' ' .. (has_run and item.id or '-') .. ' ' .. code
    .. ' ' .. missed .. ' ' .. at
  if letter == 'F' and extend(n, item) then
    return
  end
  local st, is_after = state(n), false
  if missed ~= '0' then
    is_after = tonumber(item.new_mark) > tonumber(nominal) -- those missed are newer than the one that runs
    state_add(st, 3, tonumber(missed))
    if not is_after then
      state_stretch(st, 'M' .. item.why, mark, nominal, tonumber(missed), revision, mark, now)
    end
  end
  if COUNTED[code] then
    state_add(st, COUNTED[code], 1)
    state_stretch(st, letter, nominal, nominal, 1, revision, (missed == '0' and letter ~= 'U') and mark or '', now)
  end
  if is_after then
    state_stretch(st, 'M' .. item.why, nominal, item.new_mark, tonumber(missed), revision, mark, now)
  end
end

-- A nominal time, or some that were missed, by the schedule's trigger.
local function due(n, item, policy)
  local nominal, new_mark, mark = tonumber(item.nominal), tonumber(item.new_mark), tonumber(marks[n] or '0')
  if (marks[n] or '0') ~= item.mark or nominal <= mark or new_mark <= mark then
    return 'DUP'
  end
  if math.max(nominal, new_mark) > now + limit or (is_ahead and item.missed ~= '0') then
    return 'SKEWED'
  end
  if policy.runs and state_fired(state(n)) >= policy.runs then
    complete(n, policy)
    return 'COMPLETED'
  end
  local code = item.what == 'missed' and 'MISSED' or overlapping(n, item, policy)
  marks[n] = item.new_mark
  wanted[n] = item.next
  if code == 'FIRED' then
    enqueue(n, item, policy)
  end
  note(n, item, code, LETTER[code])
  if code == 'BUFFERED' and policy.overlap == 'cancel_other' then
    local force = state_numbers(state(n))[9]
    wanted[n] = wanted[n] ~= '' and whole(math.min(tonumber(wanted[n]), force)) or whole(force)
  end
  if policy.is_delayed and state_numbers(state(n))[10] <= new_mark then
    state_numbers(state(n))[10] = 0
  end
  if (policy.runs and state_fired(state(n)) >= policy.runs) or (item.next == '' and not policy.is_delayed) then
    complete(n, policy)
  end
  return code
end

local function initial(n, item, policy)
  local numbers = state_numbers(state(n))
  if numbers[12] == 1 then
    return 'DUP'
  end
  numbers[12] = 1
  if item.missed ~= '0' then
    item.mark = item.nominal -- of no due time, and none before it is decided by this
    note(n, item, 'MISSED')
    return 'MISSED'
  end
  enqueue(n, item, policy)
  note(n, item, 'INITIAL')
  state_stretch(state(n), 'I', item.nominal, item.nominal, 1, item.revision, '', now)
  return 'FIRED'
end

local function decide(item)
  local n, policy = item.n, item.policy
  if not defs[n] or string.match(defs[n], '^%d+') ~= item.revision then
    return 'STALE'
  end
  if pauses[n] then
    return 'PAUSED'
  end
  if item.what == 'due' or item.what == 'missed' then
    return due(n, item, policy)
  elseif is_ahead and item.what ~= 'start' then
    return 'SKEWED'
  elseif item.what == 'initial' then
    return initial(n, item, policy)
  end
  local code = waiting(n, item, policy)
  if code == 'FIRED' then
    enqueue(n, item, policy)
    note(n, item, code, 'U')
    if policy.runs and state_fired(state(n)) >= policy.runs then
      complete(n, policy)
    end
  elseif code ~= 'DUP' and code ~= 'HELD' then
    note(n, item, code, LETTER[code])
  end
  return code
end

local LINES = 10 -- decisions in one entry of the log

local function write(command, key, values)
  if #values > 0 then
    redis.call(command, key, unpack(values))
  end
end

local function write_runs()
  for _, group in ipairs(groups) do
    flush(group)
    if group.is_used then
      redis.call('SADD', keys.queues, group.queue)
    end
    if #group.entering > 0 then
      redis.call('RPUSH', group.list, unpack(group.entering))
      count_add(group.queue, 'in', #group.entering)
      ring(group.queue, group.letter, math.min(#group.entering, 4)) -- whoever wakes rings on while work is left
    end
  end
end

-- What was decided, with one command for each key.
local function write_schedules()
  local new_marks, new_states, new_scores, over, new_lives, idle = {}, {}, {}, {}, {}, {}
  for n, name in ipairs(names) do
    if packed[n] or extended[n] then
      new_states[#new_states + 1] = name
      new_states[#new_states + 1] = packed[n] and state_close(packed[n]) or states[n]
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
  write('HSET', keys.schedule_mark, new_marks)
  write('HSET', keys.schedule_state, new_states)
  if redis.call('HLEN', keys.schedule_invalid) > 0 then -- what is fired can be used
    redis.call('HDEL', keys.schedule_invalid, unpack(names))
  end
  write('ZADD', keys.schedule_next, new_scores)
  write('ZREM', keys.schedule_next, over)
  write('HSET', keys.schedule_live, new_lives)
  write('HDEL', keys.schedule_live, idle)
end

local function write_waits()
  local waits = redis.call('HLEN', keys.schedule_wait)
  for _, item in ipairs(items) do
    local wait = item.policy.wait
    if item.code == 'FIRED' and (wait ~= '' or waits > 0) then
      if wait == '' then
        redis.call('HDEL', keys.schedule_wait, item.name)
      else
        redis.call('HSET', keys.schedule_wait, item.name, wait)
      end
    end
  end
end

-- Those that ended at once, and what was decided.
local function write_log(cap)
  for _, twin in ipairs(twins) do
    refuse_twin(twin.item.policy.queue, twin.item.id, twin.item.data, twin.holder, HISTORY, now)
    live_ended(twin.item.name, 'duplicate')
  end
  for first = 1, #log, LINES do
    local lines = table.concat(log, '\n', first, math.min(first + LINES - 1, #log))
    redis.call('XADD', keys.schedule_log, 'MAXLEN', '~', cap, '*', 'r', lines)
  end
end

local FIELDS = 3
local refused = fence(keys.lease, epoch, nonce)
if refused then
  return refused
end
if not_whole(skew_limit_ms, log_cap, at_ms) or #ARGV < FIRST or (#ARGV - FIRST + 1) % FIELDS ~= 0 then
  return refuse('items of 3 fields')
end
for i = FIRST, #ARGV, FIELDS do
  if not add_item(ARGV[i], ARGV[i + 1], ARGV[i + 2]) then
    return refuse('item ' .. ARGV[i])
  end
end
read_schedules(epoch, skew_limit_ms, at_ms)
local reply = { at }
for k, item in ipairs(items) do
  local code = decide(item)
  item.code = code
  reply[2 * k], reply[2 * k + 1] = code, marks[item.n] or '0'
end
write_runs()
write_schedules()
write_waits()
write_log(log_cap)
return reply
