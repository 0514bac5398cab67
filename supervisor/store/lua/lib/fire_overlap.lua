-- Library of fire: what becomes of a due run while others of its schedule are unfinished.
-- Includes  fire_schedules
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
  history_add(queue, HISTORY, id, 'replaced', job_of(data), 'a newer run of its schedule took its place', now, attempt, session, fetched)
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

-- Take the first that waits out of the buffer, and decide it by the policy as it is now.
local function waiting(n, item, policy)
  local what, key, how = item.what, keys.schedule_buffer(item.name), policy.overlap
  local numbers = state_numbers(state(n))
  local first = redis.call('LINDEX', key, 0)
  while first and not moment(first) do
    redis.call('LPOP', key)
    first = redis.call('LINDEX', key, 0)
  end
  if first ~= item.nominal then return 'DUP' end
  local code = 'FIRED'
  if what == 'drop' then -- not before its turn has come
    code = (how == 'allow' or #live(n) < policy.running) and 'DROPPED' or 'HELD'
    if code == 'HELD' then return code end
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
