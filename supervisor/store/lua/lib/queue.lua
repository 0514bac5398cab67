-- Library: what every script does alike to a queue.
-- Includes  clock
local BELL_MAX = 16

-- The two characters in front of a run's data, its kind and priority. Broken data ends where a worker reads it: as any other.
local function head_of(data)
  return string.match(data, '^[as][012]') or 'a1'
end

-- The list that a run waits in.
local function ready(queue, data)
  local head = head_of(data)
  return keys.ready(queue, string.sub(head, 1, 1), string.sub(head, 2, 2))
end

-- Wake up to `count` idle workers of one kind. Like history and counters, it never stops the work itself: what a
-- foreign key in its place makes impossible is left out.
local function ring(queue, letter, count)
  local bell = keys.bell(queue, letter)
  local tokens = count > 0 and redis.pcall('LLEN', bell)
  for _ = 1, type(tokens) == 'number' and math.min(count, BELL_MAX - tokens) or 0 do
    redis.call('RPUSH', bell, '1')
  end
end

-- Whether data begins as it must: kind, priority, limits in brackets if there are any, JSON.
local function is_head(head)
  return string.find(head, '^[as][012]{') ~= nil or string.find(head, '^[as][012]%[[%w._:/@#;-]+%]{') ~= nil
end

local function delay(queue, id, data, due)
  redis.call('ZADD', keys.later(queue), whole(due), id)
  if redis.call('ZRANK', keys.later(queue), id) == 0 then
    ring(queue, string.sub(data, 1, 1), 1) -- whoever waits for the former first one must learn that it is due earlier
  end
end

local function job_of(data)
  return string.match(data or '', '"job":"([^"|]*)"') or ''
end

-- Delete what is kept of runs beside their places and limits.
local function erase(queue, ...)
  for _, hash in ipairs({ keys.data(queue), keys.att(queue), keys.err(queue) }) do
    redis.call('HDEL', hash, ...)
  end
end

local function count_add(queue, name, n)
  redis.pcall('HINCRBY', keys.stat(queue), name, n)
end

-- Ended attempts, the newest at the right. Trimmed now and then: up to HISTORY_SLACK more than the cap stay.
local HISTORY_SLACK = 100
local function history_extend(queue, cap, lines)
  if cap > 0 and #lines > 0 then
    local length = redis.pcall('RPUSH', keys.hist(queue), unpack(lines))
    if type(length) == 'number' and length > cap + HISTORY_SLACK then
      redis.pcall('LTRIM', keys.hist(queue), -cap, -1)
    end
  end
end

-- A line of a run that ended, or that a person changed, without an acknowledgement.
local function history_add(queue, cap, id, outcome, job, note, now, attempt, session, fetched)
  history_extend(queue, cap, { table.concat({ id, outcome, attempt or '0', session or '', fetched or whole(now), whole(now), job,
    note }, '|') })
end

-- Attempts, crashes and interrupts charged so far.
local function charges(att)
  local a, c, i = string.match(att or '', '^(%d+),(%d+),(%d+)$')
  if not a or math.max(#a, #c, #i) > 15 then return 0, 0, 0 end -- as workers read them
  return tonumber(a), tonumber(c), tonumber(i)
end
