-- Library of fire: the decision about one item, what becomes of a due run while others of its schedule are unfinished, and
-- what is noted of it.
-- Includes  fire_schedules
-- End a run that must give way. One that nobody works on ends now, and so does one whose time is over: its worker is
-- told, and what it still reports is refused. Else its worker is asked. Returns whether the run is gone.
local function give_way(line, is_forced)
  for _, group in ipairs(groups) do
    flush(group) -- what gives way may be a run of this very batch
  end
  local queue, id = string.match(line, '^(%S+) (.*)$')
  local token = redis.call('HGET', keys.run(queue), id)
  if token and not is_forced and is_cancelled(queue, id, token) then return false end -- a person asked: it stands
  if token then
    redis.call('HSET', keys.cancel(queue), id, (is_forced and 'kill|' or 'stop|') .. token .. '|' .. whole(now))
    redis.call('PEXPIRE', keys.cancel(queue), 86400000)
    if not is_forced then return false end
  end
  local session, attempt, fetched = string.match(token or '', '^(.*)|(%d+)|(%d+)$')
  local data = redis.call('HGET', keys.data(queue), id) or ''
  if not token then -- also of one of this very batch, which is not in its list yet: it will be skipped there
    leave(queue, id, place_of(queue, id, data))
  end
  redis.call('HDEL', keys.run(queue), id)
  erase(queue, id)
  leave_line(queue, id, data)
  end_limits(queue, id, 'replaced')
  inform('ZREM', keys.schedule_promised, id)
  history_add(queue, HISTORY_MAX, id, 'replaced', job_of(data), 'a newer run of its schedule took its place', now, attempt, session, fetched)
  count_add(queue, 'replaced', 1)
  return true
end

-- Make room for one run among the live ones, oldest first; whether there is room now. No more are asked than must end.
local function make_room(n, policy, is_forced)
  local kept, excess, asked = {}, #live(n) - policy.running + 1, 0
  for _, line in ipairs(live(n)) do
    local is_needed = asked < excess
    if is_needed and give_way(line, is_forced) then
      excess = excess - 1
      state_add(state(n), 6, 1)
    else
      kept[#kept + 1] = line
      asked = asked + (is_needed and 1 or 0)
    end
  end
  running[n] = kept
  return excess <= 0
end

local function complete(n, policy)
  local numbers = state_numbers(state(n))
  numbers[11] = numbers[11] > 0 and numbers[11] or now
  wanted[n] = pauses[n] and at or policy.keep and whole(now + policy.keep) or '' -- its pause is over, and yet to be ended
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
  if how == 'allow' then return 'FIRED' end
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
  if #live(n) < policy.running and waiting == 0 then return 'FIRED' end
  if how == 'buffer_one' or how == 'buffer_all' then
    if waiting < policy.buffer then return buffer(n, item) end
    return how == 'buffer_one' and 'SKIPPED' or 'DROPPED'
  end
  return 'SKIPPED'
end

-- Whether a run that its schedule did not make has the id of this one. Then it passes without a run, and counts as missed:
-- `t`, taken. Its own, of an earlier call, is fired.
local function is_taken(item)
  local data = item.group and item.group.known[item.id]
  if type(data) ~= 'string' or schedule_of(item.id, data) == item.name then return false end
  item.missed, item.why = whole(tonumber(item.missed) + 1), item.why .. 't'
  return true
end

-- Take the first that waits out of the buffer, and decide it by the policy as it is now.
local function waiting(n, item, policy)
  local what, key, how = item.what, keys.schedule_buffer(item.name), policy.overlap
  local numbers = state_numbers(state(n))
  local first = redis.call('LINDEX', key, 0)
  while first and not moment(first) do
    redis.call('LPOP', key)
    first = redis.call('LINDEX', key, 0)
  end
  if not first or moment(first) ~= item.nominal then return 'DUP' end
  local code = 'FIRED'
  if what == 'drop' then -- not before its turn has come
    code = (how == 'allow' or #live(n) < policy.running) and 'DROPPED' or 'HELD'
    if code == 'HELD' then return code end
  elseif policy.runs and numbers[1] >= policy.runs then
    code = 'COMPLETED'
  elseif is_taken(item) then
    code, item.mark = 'MISSED', whole(math.max(tonumber(item.nominal) - 1, 0))
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
  if policy.within and id == item.name .. '@' .. item.nominal and #promised < 2 * promised_room then
    promised[#promised + 1] = whole(tonumber(item.nominal) + policy.within)
    promised[#promised + 1] = id
  end
  if policy.overlap ~= 'allow' or policy.is_delayed or item.what == 'start' then -- a follower's: no trigger names them
    local lines = policy.overlap == 'allow' and latest(n) or live(n)
    lines[#lines + 1] = group.queue .. ' ' .. id
  end
end

local COUNTED = { FIRED = 1, SKIPPED = 2, BUFFERED = 4, DROPPED = 5, REPLACED = 6 }
local LETTER = { FIRED = 'F', SKIPPED = 'S', BUFFERED = 'B', DROPPED = 'D', REPLACED = 'R' }

-- Note one more run of a healthy schedule, or its first: all but every decision. Whether it was so.
local function extend(n, item)
  if packed[n] or item.missed ~= '0' then return false end
  local text, nominal = states[n], tonumber(item.nominal)
  if not text then
    states[n] = '1' .. string.sub(NO_NUMBERS, 2) .. '\nF' .. item.nominal .. ' 0 1 ' .. whole(now - nominal) .. ' '
      .. item.revision
    extended[n] = true
    return true
  end
  local fired, others, from, span, count, revision, tail =
    string.match(text, '^(%d+)( [%d ]*\n)F(%d+) (%d+) (%d+) %-?%d+ (%d+)(.*)$')
  if revision ~= item.revision or tonumber(from) + tonumber(span) ~= tonumber(item.mark) then return false end
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
  if letter == 'F' and extend(n, item) then return end
  local st, is_after = state(n), false
  if missed ~= '0' then
    is_after = code ~= 'MISSED' and tonumber(item.new_mark) > tonumber(nominal) -- newer than the one that was decided
    state_add(st, 3, tonumber(missed))
    if not is_after then
      local to = code == 'MISSED' and item.new_mark or nominal
      state_stretch(st, 'M' .. item.why, mark, to, tonumber(missed), revision, mark, now)
    end
  end
  if COUNTED[code] then
    state_add(st, COUNTED[code], 1)
    local doubt = code ~= 'FIRED' and string.match(item.why, 'l') or '' -- it may have run before Redis lost that
    state_stretch(st, letter .. doubt, nominal, nominal, 1, revision, (missed == '0' and letter ~= 'U') and mark or '', now)
  end
  if is_after then
    state_stretch(st, 'M' .. item.why, nominal, item.new_mark, tonumber(missed), revision, mark, now)
  end
end

-- A nominal time, or some that were missed, by the schedule's trigger.
local function due(n, item, policy)
  local nominal, new_mark, mark = tonumber(item.nominal), tonumber(item.new_mark), tonumber(marks[n])
  if marks[n] ~= item.mark or nominal <= mark or new_mark <= mark then return 'DUP' end
  if math.max(nominal, new_mark) > now + limit or (is_ahead and item.missed ~= '0') then return 'SKEWED' end
  if policy.runs and state_fired(state(n)) >= policy.runs then
    complete(n, policy)
    return 'COMPLETED'
  end
  local code = (item.what == 'missed' or is_taken(item)) and 'MISSED' or overlapping(n, item, policy)
  marks[n] = item.new_mark
  wanted[n] = item.next
  if code == 'FIRED' then
    enqueue(n, item, policy)
  end
  note(n, item, code, LETTER[code])
  if policy.is_delayed and state_numbers(state(n))[10] <= new_mark then
    state_numbers(state(n))[10] = 0
  end
  if (policy.runs and state_fired(state(n)) >= policy.runs) or (item.next == '' and not policy.is_delayed) then
    complete(n, policy)
  end
  if code == 'BUFFERED' and policy.overlap == 'cancel_other' then -- also where no due time follows
    local force = state_numbers(state(n))[9]
    wanted[n] = wanted[n] ~= '' and whole(math.min(tonumber(wanted[n]), force)) or whole(force)
  end
  return code
end

local function initial(n, item, policy)
  local numbers = state_numbers(state(n))
  if numbers[12] == 1 then return 'DUP' end
  numbers[12] = 1
  local group, id = item.group, item.id
  local code, spent = (item.missed ~= '0' or is_taken(item)) and 'MISSED', 0
  if not code then
    local is_free
    is_free, spent = is_vacant(group.queue, id, item.name, group.known[id])
    code = not is_free and 'SKIPPED'
  end
  if code then
    item.mark = item.nominal -- of no due time, and none before it is decided by this
    note(n, item, code, LETTER[code])
    return code
  end
  group.known[id] = nil
  forget_end(id)
  enqueue(n, item, policy)
  if group.known[id] then
    keep_spent(group.queue, id, spent)
  end
  note(n, item, 'INITIAL')
  state_stretch(state(n), 'I', item.nominal, item.nominal, 1, item.revision, '', now)
  return 'FIRED'
end

-- Whether it was due before a pause that is over, which the leader has yet to end.
local function is_owed(item, paused)
  return (end_of(paused) or math.huge) <= now and tonumber(item.new_mark) <= (due_of(paused) or 0)
end

local function decide(item)
  local n, policy = item.n, item.policy
  if not defs[n] or string.match(defs[n], '^0*(%d+)') ~= item.revision then return 'STALE' end
  if pauses[n] and not is_owed(item, pauses[n]) then return 'PAUSED' end
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
