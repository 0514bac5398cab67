-- Library: where a run is, and how it leaves there without having run. Include after `queue`, `limits` and `stale`.
--
-- KEYS  prefix
local LISTS = { 'ready:a:0', 'ready:a:1', 'ready:a:2', 'ready:s:0', 'ready:s:1', 'ready:s:2', 'suspect:a', 'suspect:s' }

-- Raise, before the first write, if a key of the queue holds another type.
local function check_queue(queue)
  for _, part in ipairs({ 'data', 'run', 'att', 'err', 'stale', 'cancel', 'limits', 'blocked' }) do
    redis.call('HLEN', q(queue, part))
  end
  redis.call('ZCARD', q(queue, 'later'))
  redis.call('ZCARD', q(queue, 'dead'))
  for _, part in ipairs(LISTS) do
    redis.call('LLEN', q(queue, part))
  end
  redis.call('SCARD', prefix .. 'queues')
  redis.call('HLEN', prefix .. 'limit:u')
  redis.call('HLEN', prefix .. 'schedule:live')
end

-- The queue that knows a run: `queue` itself if one is named, else the first of all.
local function queue_of(queue, id)
  local queues = { queue }
  if queue == '' then
    queues = redis.call('SMEMBERS', prefix .. 'queues')
    table.sort(queues)
  end
  for _, name in ipairs(queues) do
    if redis.call('HEXISTS', q(name, 'data'), id) == 1 or redis.call('HEXISTS', q(name, 'run'), id) == 1 then
      return name
    end
  end
  return nil
end

-- Where a run with `data` is, and its fence, its time, the concurrency key it waits for, or the list it waits in.
local function place_of(queue, id, data)
  local token = redis.call('HGET', q(queue, 'run'), id)
  if token then
    return 'running', token
  end
  for _, place in ipairs({ 'later', 'dead' }) do
    local score = redis.call('ZSCORE', q(queue, place), id)
    if score then
      return place, score
    end
  end
  local key = redis.call('HGET', q(queue, 'blocked'), id)
  if key then
    return 'blocked', key
  end
  local suspects = q(queue, 'suspect:' .. string.sub(data, 1, 1))
  local entries = #redis.call('LPOS', suspects, id, 'COUNT', 0) -- few: what was in flight when a process died
  if entries > 0 and entries > stale_count(queue, suspects, id) then
    return 'suspect', suspects
  end
  return 'ready', ready(queue, data)
end

-- Take a run out of where it waits. The caller puts it elsewhere, or ends it.
local function leave(queue, id, place, list)
  if place == 'later' then
    redis.call('ZREM', q(queue, 'later'), id)
  elseif place == 'blocked' then
    redis.call('HDEL', q(queue, 'blocked'), id) -- its entry in the list of waiters is skipped
  else
    stale_add(queue, list, id)
  end
end

-- Whether runs wait in `part`: a list, `later`, or `wait:` and a concurrency key.
local function is_part(part)
  for _, name in ipairs(LISTS) do
    if name == part then
      return true
    end
  end
  return part == 'later' or string.match(part, '^wait:[%w._:/@#-]+$') ~= nil
end

-- Whether an entry of `part` is the place of its run, and no remainder.
local function is_place(part, place, where)
  if place == 'blocked' then
    return part == 'wait:' .. where
  end
  return place == 'ready' and string.sub(part, 1, 6) == 'ready:' or place == 'suspect' and string.sub(part, 1, 8) == 'suspect:'
end

local function job_of(data)
  return string.match(data or '', '"job":"([^"|]*)"') or ''
end

-- One line of a queue's history that a person caused.
local function note_add(queue, cap, id, what, data, note, token)
  local now = now_ms()
  local session, attempt, fetched = string.match(token or '', '^(.*)|(%d+)|(%d+)$')
  attempt = attempt or whole((charges(redis.call('HGET', q(queue, 'att'), id))))
  history_add(queue, cap, table.concat({ id, what, attempt, session or '', fetched or whole(now), whole(now),
    job_of(data), note }, '|'))
end

-- End a run that nobody works on, or whose worker Redis lets go of: nothing of it is kept but history. It must have left
-- its place, or hold `token`.
local function end_now(queue, cap, id, data, what, note, token)
  note_add(queue, cap, id, what, data, note, token)
  for _, part in ipairs({ 'run', 'data', 'att', 'err' }) do
    redis.call('HDEL', q(queue, part), id)
  end
  leave_line(queue, id, data)
  end_limits(queue, id, what)
  live_remove('', id, what)
  count_add(queue, what, 1)
end
