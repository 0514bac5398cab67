-- Library of fire: its items as they were sent, what is known of their schedules and runs while they are decided, and how
-- all that was decided is written, with as few commands as possible.
-- Includes  place
local WHAT = { due = true, missed = true, start = true, force = true, drop = true, initial = true }
local names, place, shapes, kinds, items, groups = {}, {}, {}, {}, {}, {}
local function shape_of(text)
  local overlap, running, buffer, grace, runs, wait, keep, queue =
    string.match(text, '^(%l[%l_]*) (%d+) (%d+) (%d+) (%S+) (%S+) (%S+) (%S+)$')
  shapes[text] = overlap and {
    overlap = overlap, running = tonumber(running), buffer = tonumber(buffer), grace = tonumber(grace),
    runs = tonumber(runs), wait = wait == '-' and '' or wait, keep = tonumber(keep), queue = queue,
    is_delayed = string.find(wait, 'c', 1, true) ~= nil, within = tonumber(string.match(wait, 'w(%d+)')),
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
  if not WHAT[what] or not policy or (has_run and not is_head(data)) then return false end
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

-- The state of a schedule while its decisions are written down: the numbers of its first line (see live), then
-- its latest decisions as stretches, newest first: `<code><from_ms> <span_ms> <count> <at_ms - to_ms> <revision>`.
-- A decision like the one before it makes that stretch longer, so a healthy schedule has one.
local STRETCHES_MAX = 20
local NO_NUMBERS = '0 0 0 0 0 0 0 0 0 0 0 0'

local function state_open(text)
  local head, top, tail = string.match(text, '^([^\n]*)\n?([^\n]*)(.*)$')
  return { head = head == '' and NO_NUMBERS or head, top = top, tail = tail }
end

local function state_numbers(st)
  st.numbers = st.numbers or counters(st.head)
  return st.numbers
end

-- How often it fired. Cheap: it is the first number, and the only one that changes while all is well.
local function state_fired(st)
  return st.numbers and st.numbers[1] or tonumber(string.match(st.head, '^%d+'))
end

local function state_add(st, place, count)
  if place == 1 and not st.numbers then
    local fired, others = string.match(st.head, '^(%d+)(.*)$')
    st.head = whole(tonumber(fired) + count) .. others
  else
    local numbers = state_numbers(st)
    numbers[place] = numbers[place] + count
  end
end

-- A decision about `count` nominal times in [from, to]; `mark` is where the one before it ended, if nothing lies between.
local function state_stretch(st, code, from, to, count, revision, mark, now)
  local last, start, span, n, seen = string.match(st.top, '^(%a+)(%d+) (%d+) (%d+) %-?%d+ (%d+)$')
  if last == code and seen == revision and tonumber(start) + tonumber(span) == tonumber(mark) then
    from, count = start, count + tonumber(n)
  elseif st.top ~= '' then
    st.tail = '\n' .. st.top .. st.tail
    local _, lines = string.gsub(st.tail, '\n', '')
    if lines >= STRETCHES_MAX then
      st.tail = string.match(st.tail, '^(.*)\n[^\n]*$')
    end
  end
  st.top = code .. from .. ' ' .. whole(tonumber(to) - tonumber(from)) .. ' ' .. whole(count) .. ' '
    .. whole(now - tonumber(to)) .. ' ' .. revision
end

local function state_close(st)
  local head = st.numbers and with_counters('', st.numbers) or st.head
  return st.top == '' and head or head .. '\n' .. st.top .. st.tail
end

local LATEST = 100 -- unfinished runs known of a schedule that waits for none
local marks, defs, lives, states, pauses, scores -- by place, as Redis has them
local running, packed, extended, wanted = {}, {}, {}, {} -- by place: live runs, state, and score once they are touched
local log, twins = {}, {}
local PROMISED_MAX = 100000
local promised, promised_room = {}, 0 -- until when runs must have ended, and how many more may be watched
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
  redis.call('HLEN', keys.schedule_wait)
  redis.call('HLEN', keys.schedule_invalid)
  promised_room = PROMISED_MAX - (inform('ZCARD', keys.schedule_promised) or PROMISED_MAX)
  marks = redis.call('HMGET', keys.schedule_mark, unpack(names))
  defs = redis.call('HMGET', keys.schedule_def, unpack(names))
  lives = redis.call('HMGET', keys.schedule_live, unpack(names))
  states = redis.call('HMGET', keys.schedule_state, unpack(names))
  pauses = redis.call('HLEN', keys.schedule_paused) > 0 and redis.call('HMGET', keys.schedule_paused, unpack(names)) or {}
  scores = redis.call('ZMSCORE', keys.schedule_next, unpack(names))
  now, limit = now_ms(), tonumber(skew_ms)
  is_ahead = tonumber(asked_ms) > now + limit -- the caller's clock is: what it judged by the time is no fact
  at, term = whole(now), current
  for n = 1, #names do
    marks[n] = moment(marks[n]) or '0'
  end
  for _, item in ipairs(items) do -- what may have to give way lies in these
    for queue in string.gmatch(item.policy.overlap ~= 'allow' and lives[item.n] or '', '(%S+) [^\n]+') do
      verify(queue)
    end
  end
  for _, group in ipairs(groups) do
    verify(group.queue)
    for k, data in ipairs(redis.call('HMGET', keys.data(group.queue), unpack(group.ids))) do
      group.known[group.ids[k]] = data or nil
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

-- Unfinished runs of a schedule.
local function live(n)
  running[n] = running[n] or unfinished_of(lives[n])
  return running[n]
end

local function state(n)
  packed[n] = packed[n] or state_open(states[n] or '')
  return packed[n]
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
      new_marks[#new_marks + 1] = marks[n]
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
  write('ZADD', keys.schedule_promised, promised)
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
    refuse_twin(twin.item.policy.queue, twin.item.id, twin.item.data, twin.holder, HISTORY_MAX, now)
    live_ended(twin.item.name, 'duplicate')
  end
  for first = 1, #log, LINES do
    local lines = table.concat(log, '\n', first, math.min(first + LINES - 1, #log))
    inform('XADD', keys.schedule_log, 'MAXLEN', '~', cap, '*', 'r', lines)
  end
end
