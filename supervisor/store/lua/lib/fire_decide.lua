-- Library of fire: the decision about one item, and what is noted of it.
-- Includes  fire_overlap

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
  if policy.overlap ~= 'allow' or policy.is_delayed then
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
  local nominal, new_mark, mark = tonumber(item.nominal), tonumber(item.new_mark), tonumber(marks[n])
  if marks[n] ~= item.mark or nominal <= mark or new_mark <= mark then return 'DUP' end
  if math.max(nominal, new_mark) > now + limit or (is_ahead and item.missed ~= '0') then return 'SKEWED' end
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
  if numbers[12] == 1 then return 'DUP' end
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
  if not defs[n] or string.match(defs[n], '^%d+') ~= item.revision then return 'STALE' end
  if pauses[n] then return 'PAUSED' end
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
