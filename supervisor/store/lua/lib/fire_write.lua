-- Library of fire: what was decided is written, with as few commands as possible.
-- Includes  fire_decide
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
    refuse_twin(twin.item.policy.queue, twin.item.id, twin.item.data, twin.holder, HISTORY, now)
    live_ended(twin.item.name, 'duplicate')
  end
  for first = 1, #log, LINES do
    local lines = table.concat(log, '\n', first, math.min(first + LINES - 1, #log))
    inform('XADD', keys.schedule_log, 'MAXLEN', '~', cap, '*', 'r', lines)
  end
end
