-- Move what waits in one place of a queue to the same place of another, a page at a time.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          from where
--       target         to where
--       part           a ready or suspect list, later, or wait: and a concurrency key
--       count          at most so many, 1 to 100
--       offset         of `later`: so many stayed so far
-- Includes  place
--
-- Returns  how many entries were looked at, how many runs moved, how many stay because the target has one of their id
--
-- From the head to the tail, so that their order stays. A run leaves one queue and enters the other in this one step: it
-- is never in both, and never in none. One that stays in a list goes to its tail. One that waits for a concurrency key
-- goes to the tail of a ready list, and waits again if it must. A user of Redis who may not tell the schedule of one is
-- refused (NOPERM) before the page is changed.
if not_whole(count, offset) or tonumber(count) < 1 or tonumber(count) > 100 or tonumber(offset) < 0 or queue == target then
  return refuse('two queues, a count of 1 to 100, and an offset')
end
if not is_part(part) then return refuse('part ' .. part) end
check_queue(queue)
check_queue(target)
redis.call('HLEN', keys.limit_unique)
local from, to = keys.queue(queue) .. part, keys.queue(target) .. part
local is_waiting = is_wait(part)
local is_later, ids, due, skipped, places = part == 'later', {}, {}, {}, {}
if is_later then
  local page = redis.call('ZRANGE', from, offset, offset + count - 1, 'WITHSCORES')
  for n = 1, #page, 2 do
    ids[#ids + 1], due[#due + 1] = page[n], page[n + 1]
  end
else
  ids = redis.call('LRANGE', from, 0, count - 1)
end
local beyond = refused_beyond(queue, ids, '', 'schedule', 'move')
if beyond then return beyond end
if not is_later then
  ids, skipped, places = take_entries(queue, part, tonumber(count))
end

-- The unfinished runs of a schedule are listed with their queues.
local function live_moved(id)
  local lines, schedule = live_lines(string.match(id, '^([^@!]+)[@!]') or '')
  if type(lines) == 'string' then
    local moved = {}
    for line in string.gmatch(lines, '[^\n]+') do
      moved[#moved + 1] = line == queue .. ' ' .. id and target .. ' ' .. id or line
    end
    redis.call('HSET', keys.schedule_live, schedule, table.concat(moved, '\n'))
  end
end

local function carry(id, data)
  leave_line(queue, id, data)
  redis.call('HDEL', keys.blocked(queue), id)
  for hash, its in pairs({ [keys.data(queue)] = keys.data(target), [keys.att(queue)] = keys.att(target),
    [keys.err(queue)] = keys.err(target), [keys.limits(queue)] = keys.limits(target) }) do
    local value = redis.call('HGET', hash, id)
    if value then
      redis.call('HSET', its, id, value)
      redis.call('HDEL', hash, id)
    end
  end
  local header = header_of(data)
  local of = header and limits_in(header) or {}
  local unique = of.unique
  if of.concurrency then
    tell_waiting(of.concurrency, queue) -- it may have been brought back for a slot, which those that stay can take now
  end
  if unique and redis.call('HGET', keys.limit_unique, unique) == queue .. ' ' .. id then
    redis.call('HSET', keys.limit_unique, unique, target .. ' ' .. id)
  end
  if of.is_replacing and redis.pcall('HGET', keys.limit_newest, of.concurrency) == queue .. ' ' .. id then
    redis.pcall('HSET', keys.limit_newest, of.concurrency, target .. ' ' .. id) -- the newest, wherever it waits
  end
  live_moved(id)
end

local moved, stay = 0, 0
for n, id in ipairs(ids) do
  local data = not skipped[n] and redis.call('HGET', keys.data(queue), id)
  local is_here = is_later or places[n]
  if data and is_here and redis.call('HEXISTS', keys.data(target), id) == 1 then
    stay = stay + 1
    if not is_later then
      redis.call('RPUSH', from, id)
    end
  elseif data and is_here then
    carry(id, data)
    if is_later then
      redis.call('ZREM', from, id)
      redis.call('ZADD', to, due[n], id)
    else
      redis.call('RPUSH', is_waiting and ready(target, data) or to, id)
    end
    moved = moved + 1
  elseif not data and not skipped[n] and not is_waiting then -- it was cancelled
    redis.call('ZREM', keys.later(queue), id)
    forget(queue, nil, id)
  end
end
if moved > 0 then
  redis.call('SADD', keys.queues, target)
  count_add(queue, 'moved_out', moved)
  count_add(target, 'moved_in', moved)
  local letter = not is_waiting and string.match(part, ':(%a)')
  for _, kind in ipairs(letter and { letter } or { 'a', 's' }) do
    ring(target, kind, math.min(moved, 4))
  end
end
return { #ids, moved, stay }
