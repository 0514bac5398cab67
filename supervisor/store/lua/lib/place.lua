-- Library: where a run is, and how it leaves there without having run.
-- Includes  run

-- Raise, before the first write, if a key of the queue holds another type.
local function check_queue(queue)
  for _, hash in ipairs({ keys.data(queue), keys.run(queue), keys.att(queue), keys.err(queue), keys.stale(queue),
    keys.cancel(queue), keys.limits(queue), keys.blocked(queue) }) do
    redis.call('HLEN', hash)
  end
  redis.call('ZCARD', keys.later(queue))
  redis.call('ZCARD', keys.dead(queue))
  for _, part in ipairs(waiting_lists()) do
    redis.call('LLEN', keys.queue(queue) .. part)
  end
  redis.call('SCARD', keys.queues)
  redis.call('HLEN', keys.schedule_live)
end

-- Whether a request that was judged by `job` (none or empty: any) is one for the run with `data`.
local function is_of(data, job)
  return (job or '') == '' or job_of(data) == job
end

-- Whether `queue` knows a run of `job` (see is_of).
local function is_in(queue, id, job)
  local data = redis.call('HGET', keys.data(queue), id)
  return (data or redis.call('HEXISTS', keys.run(queue), id) == 1) and is_of(data, job)
end

-- Which of `ids` are fields of a hash: each as a field of the table returned. Of a short one all fields cost less.
local function fields_of(hash, ids)
  local length, found = redis.call('HLEN', hash), {}
  if length == 0 then return found end
  local is_short = length < #ids
  for n, each in ipairs(redis.call(is_short and 'HKEYS' or 'HMGET', hash, unpack(is_short and {} or ids))) do
    found[is_short and each or ids[n]] = each and true or nil
  end
  return found
end

-- Note in `found`, for each of `ids`, that `queue` knows a run of it and of the job beside it, if it comes first by name.
local function look_into(queue, ids, jobs, found)
  local data, run = fields_of(keys.data(queue), ids), fields_of(keys.run(queue), ids)
  if not next(data) and not next(run) then return end
  for n, id in ipairs(ids) do
    if (data[id] or run[id]) and is_of(redis.call('HGET', keys.data(queue), id), jobs[n])
      and (not found[n] or queue < found[n]) then
      found[n] = queue
    end
  end
end

-- Without both of them a queue knows no run.
local function hashes_of_runs(queue)
  return { keys.data(queue), keys.run(queue) }
end

-- Note in `found` which queues of a page know `ids`, up to 100, each of the job beside it; of several the first by name.
-- However many they are, each queue costs one look. Where a key of a queue is not ours, it hides no run of another.
-- Returns where the next page begins, and such a queue.
local function look_in_page(ids, jobs, found, cursor)
  local queues, following = queues_with(hashes_of_runs, cursor)
  local foreign
  for _, queue in ipairs(queues) do
    if not pcall(look_into, queue, ids, jobs, found) then
      foreign = queue
    end
  end
  return following, foreign
end

-- The queues that know `ids`, of all. Raises if a key that is not ours may have hidden every one.
local function queues_of(ids, jobs)
  local found, cursor, foreign = {}, '0', nil
  repeat
    local other
    cursor, other = look_in_page(ids, jobs, found, cursor)
    foreign = other or foreign
  until cursor == '0'
  if foreign and next(found) == nil then
    look_into(foreign, ids, jobs, found)
  end
  return found
end

-- The queues that know the runs named in ARGV from `first` on, by their places; nil and a refusal where those are not up
-- to 100 runs of queue, id and job. Raises if a key of such a queue holds another type.
local RUN_FIELDS = 3
local function queues_named(first)
  local count, found, ids, jobs, places = (#ARGV - first + 1) / RUN_FIELDS, {}, {}, {}, {}
  if count < 1 or count > 100 or count ~= math.floor(count) then
    return nil, refuse('up to 100 runs of queue, id and job')
  end
  for i = first, #ARGV, RUN_FIELDS do
    if ARGV[i] == '' then
      local n = #ids + 1
      ids[n], jobs[n], places[n] = ARGV[i + 1], ARGV[i + 2], i
    elseif is_in(ARGV[i], ARGV[i + 1], ARGV[i + 2]) then
      found[i] = ARGV[i]
    end
  end
  for n, queue in pairs(#ids > 0 and queues_of(ids, jobs) or {}) do
    found[places[n]] = queue
  end
  local checked = {}
  for _, queue in pairs(found) do
    if not checked[queue] then
      checked[queue] = true
      check_queue(queue)
    end
  end
  return found
end

-- Whether a user of Redis may write a hash. Redis before 7 cannot say, and has no users who may write a part.
local function may_write(key)
  return not redis.acl_check_cmd or redis.acl_check_cmd('HSET', key, 'field', 'value')
end

-- The hash that a change to a run is written to beside its queue, and that this user may not write, as a producer's may not:
-- of its schedule, or the tally of the run that counts it. `of`: only schedule, or only tally; none: either.
local function beyond(queue, id, of)
  local header, schedule = header_of(redis.call('HGET', keys.data(queue), id) or ''), string.match(id, '^([^@!]+)[@!]')
  local above = of ~= 'schedule' and header and limits_in(header).above
  local key = above and keys.tally(string.sub(id, 1, above))
  if schedule and not key and of ~= 'tally' and (redis.call('HEXISTS', keys.schedule_def, schedule) == 1
    or redis.call('HEXISTS', keys.schedule_live, schedule) == 1) then
    key = keys.schedule_live
  end
  return key and not may_write(key) and key or nil
end

-- A refusal, before the first write, where one of `ids`, of `job`, is beyond this user; nil where all may be changed.
local function refused_beyond(queue, ids, job, of, what)
  if may_write(keys.schedule_live) and may_write(keys.tally('id')) then return nil end
  for _, id in ipairs(ids) do
    if beyond(queue, id, of) and is_of(redis.call('HGET', keys.data(queue), id), job) then
      return redis.error_reply('NOPERM a schedule or another run counts ' .. id .. ', which is for users of trees to ' .. what)
    end
  end
end

-- Where a run with `data` is, and its fence, its time, the concurrency key it waits for, or the list it waits in.
local function place_of(queue, id, data)
  local token = redis.call('HGET', keys.run(queue), id)
  if token then return 'running', token end
  local due = redis.call('ZSCORE', keys.later(queue), id)
  local died = not due and redis.call('ZSCORE', keys.dead(queue), id)
  if due or died then return due and 'later' or 'dead', due or died end
  local key = redis.call('HGET', keys.blocked(queue), id)
  if key then return 'blocked', key end
  local suspects = keys.suspect(queue, string.sub(data, 1, 1))
  local entries = #redis.call('LPOS', suspects, id, 'COUNT', 0) -- few: what was in flight when a process died
  if entries > 0 and entries > stale_count(queue, suspects, id) then return 'suspect', suspects end
  return 'ready', ready(queue, data)
end

-- Take a run out of where it waits. The caller puts it elsewhere, or ends it.
local function leave(queue, id, place, list)
  if place == 'later' then
    redis.call('ZREM', keys.later(queue), id)
  elseif place == 'blocked' then
    redis.call('HDEL', keys.blocked(queue), id) -- its entry in the list of waiters is skipped
  else
    stale_add(queue, list, id)
  end
end

local function is_wait(part)
  return string.sub(part, 1, #parts.wait('')) == parts.wait('')
end

-- Whether runs wait in `part`: a list, `later`, or the list of those that wait for a concurrency key.
local function is_part(part)
  for _, name in ipairs(waiting_lists()) do
    if name == part then return true end
  end
  return part == 'later' or is_wait(part)
end

-- Whether an entry of `part` is the place of its run, and no remainder.
local function is_place(part, place, where)
  if place == 'blocked' then return part == parts.wait(where) end
  return (place == 'ready' or place == 'suspect') and string.sub(part, 1, #place + 1) == place .. ':'
end

-- Take the first `count` entries out of a list: ids, which of them are skipped, and which are the place of their run.
local function take_entries(queue, part, count)
  local list, places = keys.queue(queue) .. part, {}
  local ids = redis.call('LRANGE', list, 0, count - 1)
  local skipped = stale_drop(queue, list, ids)
  for n, id in ipairs(ids) do
    local data = not skipped[n] and redis.call('HGET', keys.data(queue), id)
    places[n] = data and is_place(part, place_of(queue, id, data))
  end
  redis.call('LTRIM', list, #ids, -1)
  return ids, skipped, places
end

-- End a run that nobody works on, or whose worker Redis lets go of: nothing of it is kept but history. It must have left
-- its place, or hold `token`.
local function end_now(queue, cap, id, data, what, note, token)
  note_add(queue, cap, id, what, data, note, token)
  redis.call('HDEL', keys.run(queue), id)
  erase(queue, id)
  leave_line(queue, id, data)
  end_limits(queue, id, what)
  live_remove(schedule_of(id, data), id, what)
  count_add(queue, what, 1)
end
