-- Library: limits, and with them how a run comes into being and how it goes.
--
-- A run's limits stand in front of its envelope, `<kind><priority>[<limits>]<json>`, parted by semicolons (core/limits.py):
-- `u<key>` unique, `c<max>:<key>` concurrency, `r<count>/<per_ms>:<key>` rate. Every run is judged by its own numbers.
-- `x`: where all slots of its concurrency key are taken, the oldest that holds one is asked to give way to it.
-- `p<length>` is no limit: so much of its id is the id of the run that counts it among its own (adr/0030).
--
--   q:<queue>:limits      hash    id to `[…]` of a run that exists and is not dead, where it is unique, limited at once, or
--                                 counted by another
--   q:<queue>:blocked     hash    id to the concurrency key that it waits for: the place of such a run
--   q:<queue>:wait:<key>  list    their ids, in order. One that `blocked` does not have with this key is skipped
--   q:<queue>:woken       set     concurrency keys that may have room again; the next turn looks
--   limit:u               hash    unique key to `queue id` of the unfinished run that holds it. A holder whose `limits` do
--                                 not say so is gone, and gives way
--   limit:c:<key>         set     `queue id` of the runs that hold a slot: exactly runs that are in `run`
--   limit:q:<key>         set     queues in which runs wait for a slot
--   limit:n               hash    concurrency key to `queue id` of the newest run that replaces others
--   limit:r:<key>         string  `tat_us 0`, expires: GCRA by the server's time
--   q:<queue>:rate:<kind>:<key>  zset  expires: runs that came too early for a rate, by when they first did. They wait in `later`,
--                                 each until it may start; one starts only if all in front of it could start as well
--   tally:<id>            hash    expires: what became of the runs below a run, those that it spawned and those that they
--                                 did. total and left; how many ended ok, dead, cancelled …; c:<name> what they counted;
--                                 errors, and the first of them e:<n>; then:<n> what starts when nothing is left, as
--                                 `<when> <delay_ms> <queue> <id> <data>`; up, the length of the id of the run above;
--                                 keep, for how many ms it is kept when nothing is left
--
-- A slot is given with `run` and taken with it, in one script, so it cannot leak; where one leaked all the same (a key
-- deleted by hand), whoever finds all slots taken checks some holders, and frees those that do not run.
--
-- Includes  queue
local HEALED_MAX, SAMPLE = 4, 8

local parsed = {} -- many runs of one script share theirs; nobody changes what is in here
local function limits_in(header)
  local of = parsed[header]
  if of then
    return of
  end
  of = {}
  parsed[header] = of
  for part in string.gmatch(header, '[^%[%];]+') do
    local letter = string.sub(part, 1, 1)
    if letter == 'u' then
      of.unique = string.sub(part, 2)
    elseif letter == 'c' then
      of.max, of.concurrency = string.match(part, '^c(%d+):(.+)$')
      of.max, of.slots = tonumber(of.max), keys.limit_slots(of.concurrency or '')
    elseif letter == 'x' then
      of.is_replacing = true
    elseif letter == 'r' then
      of.count, of.per_ms, of.rate = string.match(part, '^r(%d+)/(%d+):(.+)$')
      of.count, of.per_ms = tonumber(of.count), tonumber(of.per_ms)
    elseif letter == 'p' then
      of.above = tonumber(string.sub(part, 2))
    end
  end
  return of
end

-- The limits in front of an envelope; nil for most runs, at the price of one byte.
local function header_of(data)
  return string.byte(data, 3) == 91 and string.match(data, '^..(%[[^%]]*%])') or nil
end

-- Raise if a key that adding a run writes holds another type, before the first write, so that no run is half added.
-- Three characters of its data tell runs apart that need different checks.
local function check_types(queue, head)
  redis.call('SCARD', keys.queues)
  redis.call('HLEN', keys.data(queue))
  redis.call('HLEN', keys.stat(queue))
  redis.call('ZCARD', keys.later(queue))
  redis.call('LLEN', ready(queue, head))
  redis.call('LLEN', keys.bell(queue, string.sub(head, 1, 1)))
  if string.sub(head, 3, 3) ~= '{' then
    redis.call('HLEN', keys.limits(queue))
    redis.call('HLEN', keys.limit_unique)
  end
end

-- Take what a run holds as long as it exists; `queue id` of the holder, and nothing written, if its unique key is taken.
local function claim(queue, id, data)
  local header = header_of(data)
  local of = header and limits_in(header) or {}
  if of.unique then
    local held, me = keys.limit_unique, queue .. ' ' .. id
    local holder = redis.call('HGET', held, of.unique)
    if holder and holder ~= me then
      local its_queue, its_id = string.match(holder, '^(%S+) (%S+)$')
      local its = its_id and redis.pcall('HGET', keys.limits(its_queue), its_id)
      if type(its) == 'string' and limits_in(its).unique == of.unique
        and redis.pcall('HEXISTS', keys.data(its_queue), its_id) == 1 then
        return holder
      end
    end
    redis.call('HSET', held, of.unique, me)
  end
  if of.unique or of.concurrency or of.above then
    redis.call('HSET', keys.limits(queue), id, header)
  end
  return nil
end

-- Make a run exist; false if its id is there already: an id names one run. The caller then puts it into a place.
-- False and `queue id` of the holder, if another unfinished run holds its unique key.
local function create(queue, id, data)
  if string.byte(data, 3) ~= 91 then
    return redis.call('HSETNX', keys.data(queue), id, data) == 1
  end
  if redis.call('HEXISTS', keys.data(queue), id) == 1 then
    return false
  end
  local holder = claim(queue, id, data)
  if holder then
    return false, holder
  end
  redis.call('HSET', keys.data(queue), id, data)
  return true
end

-- Ask the runs that hold slots of a key longest to give way to newer ones, until `wanted` of them were asked. The agents
-- of their replicas look (queue_unwanted.lua); one that has not ended after YIELD_MS is let go of.
local YIELD_MS, YIELD_REQUEST_MS, YIELD_LOOK_MAX = 30000, 86400000, 50
local function ask_to_yield(key, wanted)
  local holders, asked, now = {}, 0, now_ms()
  local sample = redis.pcall('SRANDMEMBER', keys.limit_slots(key), YIELD_LOOK_MAX)
  for _, holder in ipairs(sample['err'] and {} or sample) do
    local queue, id = string.match(holder, '^(%S+) (%S+)$')
    local token = queue and redis.pcall('HGET', keys.run(queue), id)
    local request = queue and redis.pcall('HGET', keys.cancel(queue), id)
    if type(request) == 'string' and type(token) == 'string' and string.find(request, token, 1, true) then
      asked = asked + 1
    elseif type(token) == 'string' then
      holders[#holders + 1] = { queue = queue, id = id, token = token, at = tonumber(string.match(token, '|(%d+)$')) or 0 }
    end
  end
  table.sort(holders, function(a, b) return a.at < b.at or (a.at == b.at and a.id < b.id) end)
  for n = 1, math.min(#holders, wanted - asked) do
    local of = holders[n]
    redis.pcall('HSET', keys.cancel(of.queue), of.id, 'yield|' .. of.token .. '|' .. whole(now + YIELD_MS))
    redis.pcall('PEXPIRE', keys.cancel(of.queue), YIELD_REQUEST_MS)
  end
end

-- A run that may begin replaces older ones with its key, if it is of that sort: also while no worker is free to take it.
local function replace_older(queue, id, data)
  local header = header_of(data)
  local of = header and limits_in(header)
  if not of or not of.is_replacing then
    return
  end
  redis.pcall('HSET', keys.limit_newest, of.concurrency, queue .. ' ' .. id)
  local held = redis.pcall('SCARD', of.slots)
  if type(held) == 'number' and of.max and held >= of.max then
    ask_to_yield(of.concurrency, held - of.max + 1)
  end
end

-- A run that came to an end before it began: another one holds its unique key.
local function refuse_twin(queue, id, data, holder, cap, now)
  local job = string.match(data, '"job":"([^"|]*)"') or ''
  history_add(queue, cap, table.concat({ id, 'duplicate', '0', '', whole(now), whole(now), job,
    'its unique key is held by ' .. string.gsub(holder, '^%S+ ', '') }, '|'))
  count_add(queue, 'duplicate', 1)
end

-- Like what wakes workers, nothing below stops the end of a run: a foreign key in the way is left alone.

-- A slot of `key` may be free: whoever takes runs from a queue in which some wait for it will look.
local told = {}
local function tell_waiting(key)
  if told[key] then
    return
  end
  told[key] = true
  local waiting = redis.pcall('SMEMBERS', keys.limit_queues(key))
  for _, queue in ipairs(waiting['err'] and {} or waiting) do
    redis.pcall('SADD', keys.woken(queue), key)
    ring(queue, 'a', 1)
    ring(queue, 's', 1)
  end
end

-- A run that leaves its queue without a start leaves the line of its rate too; the first of those behind it looks at once.
local function leave_line(queue, id, data)
  local header = header_of(data)
  local rate, kind = header and limits_in(header).rate, string.sub(data, 1, 1)
  local line = rate and keys.rate(queue, kind, rate)
  if line and redis.pcall('ZREM', line, id) == 1 then
    local first = redis.pcall('ZRANGE', line, 0, 0)[1]
    if first then
      redis.pcall('ZADD', keys.later(queue), 'XX', 'LT', whole(now_ms()), first)
      ring(queue, kind, 1)
    end
  end
end

-- These runs run no more. With `is_end` they are over, else they go on later. Those without limits cost one command.
-- Returns which of them are over and counted by another run: id to how much of it is that one's; nil for none.
local function release_all(queue, ids, is_end)
  local hash = keys.limits(queue)
  local known = redis.pcall('HLEN', hash)
  if #ids == 0 or type(known) ~= 'number' or known == 0 then
    return nil
  end
  local gone, counted = {}, nil
  for n, header in ipairs(redis.call('HMGET', hash, unpack(ids))) do
    if header then
      local of, me = limits_in(header), queue .. ' ' .. ids[n]
      if is_end then
        gone[#gone + 1] = ids[n]
        if of.unique and redis.pcall('HGET', keys.limit_unique, of.unique) == me then
          redis.pcall('HDEL', keys.limit_unique, of.unique)
        end
        if of.is_replacing and redis.pcall('HGET', keys.limit_newest, of.concurrency) == me then
          redis.pcall('HDEL', keys.limit_newest, of.concurrency)
        end
        if of.above then
          counted = counted or {}
          counted[ids[n]] = of.above
        end
      end
      if of.concurrency then
        redis.pcall('SREM', keys.limit_slots(of.concurrency), me)
        redis.pcall('HDEL', keys.blocked(queue), ids[n])
        tell_waiting(of.concurrency) -- also of one that held none: it may have been woken in another's place
      end
    end
  end
  if #gone > 0 then
    redis.call('HDEL', hash, unpack(gone))
  end
  return counted
end

-- What changes in the tallies of this script's runs: collected, then written for each tally at once. A run's own end and
-- the children that it leaves must be written together, so a turn holds this back until it has seen all ends.
local tallies = { is_held = false, changes = {}, by_length = {}, longest = 0, above = {} }
local TALLY_UNFINISHED_MS, TALLY_ERRORS_MAX, TALLY_NAMES_MAX = 7776000000, 100, 50

local function tally_of(id)
  local of = tallies.changes[id]
  if not of then
    of = { id = id, add = {}, errors = {} }
    tallies.changes[id] = of
    tallies.by_length[#id] = tallies.by_length[#id] or {}
    table.insert(tallies.by_length[#id], of)
    tallies.longest = math.max(tallies.longest, #id)
  end
  return of
end

local function tally_add(id, field, n)
  local add = tally_of(id).add
  add[field] = (add[field] or 0) + n
end

local function tally_error(id, run, code, message)
  local errors = tally_of(id).errors
  tally_add(id, 'errors', 1)
  if #errors < TALLY_ERRORS_MAX then
    errors[#errors + 1] = cjson.encode({ run = run, code = code, message = message })
  end
end

-- Start what waits for the end of all runs below a run. One that cannot be started stays where it is, and the tally with
-- it as long as one of the dead can be requeued.
local FOLLOW_HISTORY = 1000000 -- no queue remembers more; its own turns trim to what it does
local function tally_follow(key, count, above)
  local sums, is_waiting = redis.call('HMGET', key, 'total', 'ok', 'duplicate', 'dead'), false
  local is_success = tonumber(sums[1]) == (tonumber(sums[2] or 0) or 0) + (tonumber(sums[3] or 0) or 0)
  for n = 1, count do
    local line = redis.call('HGET', key, 'then:' .. whole(n))
    local when, wait, queue, id, data = string.match(line or '', '^(%l+) (%d+) (%S+) (%S+) (.*)$')
    is_waiting = is_waiting or data and when ~= 'complete' and not is_success
    if data and (when == 'complete' or is_success) then
      if above then -- it is counted where the run that it follows is
        data = string.sub(data, 1, 2) .. '[p' .. whole(#above) .. (string.byte(data, 3) == 91
          and ';' .. string.sub(data, 4) or ']' .. string.sub(data, 3))
      end
      check_types(queue, string.sub(data, 1, 3))
      redis.call('HDEL', key, 'then:' .. whole(n))
      local is_new, holder = create(queue, id, data)
      if is_new then
        redis.call('SADD', keys.queues, queue)
        if wait ~= '0' then
          delay(queue, id, data, now_ms() + tonumber(wait))
        else
          replace_older(queue, id, data)
          redis.call('RPUSH', ready(queue, data), id)
          ring(queue, string.sub(data, 1, 1), 1)
        end
        count_add(queue, 'in', 1)
      elseif holder then
        refuse_twin(queue, id, data, holder, FOLLOW_HISTORY, now_ms())
      end
      if above and (is_new or holder) then
        tally_add(above, 'total', 1)
        tally_add(above, is_new and 'left' or 'duplicate', 1)
      end
    end
  end
  if is_waiting and (tonumber(sums[4] or 0) or 0) > 0 then
    redis.call('PEXPIRE', key, TALLY_UNFINISHED_MS)
  end
end

local function tally_write(of)
  local key = keys.tally(of.id)
  local known = redis.call('HMGET', key, 'total', 'left', 'up', 'keep', 'thens')
  local left, above = tonumber(known[2] or 0) or 0, known[3] and string.sub(of.id, 1, tonumber(known[3])) or nil
  if not known[1] then
    return nil -- it expired, or was made by nobody: nothing is counted
  end
  for field, n in pairs(of.add) do
    local name = field
    if string.sub(field, 1, 2) == 'c:' and redis.call('HEXISTS', key, field) == 0
      and redis.call('HINCRBY', key, 'names', 1) > TALLY_NAMES_MAX then
      name = 'c:other'
    end
    if n ~= 0 then
      redis.pcall('HINCRBY', key, name, whole(n)) -- a sum over 2^63 stays as it is, and must not keep the rest back
    end
  end
  local told = tonumber(redis.call('HGET', key, 'told') or 0) or 0
  for n = 1, math.min(#of.errors, TALLY_ERRORS_MAX - told) do
    redis.call('HSET', key, 'e:' .. whole(told + n), of.errors[n], 'told', whole(told + n))
  end
  local now_left = left + (of.add.left or 0)
  if now_left <= 0 then
    redis.call('PEXPIRE', key, known[4] or '86400000')
  elseif left <= 0 then
    redis.call('PEXPIRE', key, TALLY_UNFINISHED_MS)
  end
  return above, now_left <= 0 and known[5] and { key, tonumber(known[5]) or 0, above } or nil
end

-- Write what was collected: the longest ids first, since each adds to the one above it. Nothing here stops the end of a
-- run: what a foreign key makes impossible is left out.
local function tally_settle()
  local length = tallies.longest
  while length > 0 do
    for _, of in ipairs(tallies.by_length[length] or {}) do
      local is_done, above, follow = pcall(tally_write, of)
      if is_done and above then
        for field, n in pairs(of.add) do
          tally_add(above, field, n)
        end
        local errors = tally_of(above).errors
        for n = 1, math.min(#of.errors, TALLY_ERRORS_MAX - #errors) do
          errors[#errors + 1] = of.errors[n]
        end
      end
      if is_done and follow then
        pcall(tally_follow, follow[1], follow[2], follow[3])
      end
    end
    length = length - 1
  end
  tallies.changes, tallies.by_length, tallies.longest = {}, {}, 0
end

-- A run that another counts is over. `err`: the JSON of why, of one that was given up.
local function tally_end(id, above, outcome, err)
  local parent = string.sub(id, 1, above)
  tallies.above[id] = above
  tally_add(parent, 'left', -1)
  tally_add(parent, outcome, 1)
  if err and err ~= '' then
    local is_json, error = pcall(cjson.decode, err)
    error = is_json and type(error) == 'table' and error or {}
    tally_error(parent, id, string.sub(tostring(error['type'] or error['reason'] or outcome), 1, 64),
      string.sub(tostring(error['message'] or error['detail'] or ''), 1, 300))
  end
end

-- Free what a run holds, at any end of it. May be called twice.
local function end_limits(queue, id, outcome, err)
  local counted = release_all(queue, { id }, true)
  if counted then
    tally_end(id, counted[id], outcome, err)
    if not tallies.is_held then
      tally_settle()
    end
  end
end

-- A run ended, and leaves runs that are counted from now on, counts, errors, and runs that wait for the end of all:
-- `left_behind` as its worker sent it. A run that leaves no other has no tally where another one counts it.
local function tally_open(id, has_children, left_behind)
  local key, above, keep = keys.tally(id), tallies.above[id], tonumber(left_behind.keep) or 86400000
  local counter, follow = id, left_behind['then'] or {}
  if left_behind.steps then
    redis.call('PEXPIRE', keys.steps(id), whole(keep))
  end
  if above and not has_children and #follow == 0 then
    counter = string.sub(id, 1, above)
  else
    if redis.call('HGET', key, 'left') == '0' then
      redis.call('DEL', key) -- of an earlier run of this id
    end
    redis.call('HSETNX', key, 'total', '0')
    redis.call('HSETNX', key, 'left', '0')
    redis.call('HSET', key, 'keep', whole(keep))
    if above then
      redis.call('HSET', key, 'up', above)
    end
    redis.call('PEXPIRE', key, TALLY_UNFINISHED_MS)
    tally_add(id, 'left', 0) -- it may be complete at once
    local last = #follow > 0 and redis.call('HINCRBY', key, 'thens', #follow)
    for n, line in ipairs(follow) do
      redis.call('HSET', key, 'then:' .. whole(last - #follow + n), line)
    end
  end
  for name, n in pairs(left_behind.counts or {}) do
    tally_add(counter, 'c:' .. name, tonumber(n) or 0)
  end
  for _, told in ipairs(left_behind.errors or {}) do
    tally_error(counter, id, told[1], told[2])
  end
  if left_behind.errors_more then
    tally_add(counter, 'errors', left_behind.errors_more)
  end
end

-- A run that was given up runs again: whoever counts it takes its death back.
local function tally_revive(id, data)
  local header = header_of(data)
  local above = header and limits_in(header).above
  if above then
    local parent = string.sub(id, 1, above)
    local is_known = (tonumber(redis.pcall('HGET', keys.tally(parent), 'dead') or 0) or 0) > 0
    tally_add(parent, is_known and 'dead' or 'total', is_known and -1 or 1)
    tally_add(parent, 'left', 1)
    tally_settle()
  end
end

-- Whether a person asked for the end of just this execution.
local function is_cancelled(queue, id, token)
  token = token .. '|'
  local asked = redis.pcall('HGET', keys.cancel(queue), id)
  local how = type(asked) == 'string' and string.match(asked, '^(%l+)|')
  return (how == 'cancel' or how == 'force') and string.find(asked, token, #how + 2, true) == #how + 2
end

-- Clear away what is left of a run that was cancelled: its data is gone, so nothing else will.
local function forget(queue, schedule, id)
  redis.call('HDEL', keys.att(queue), id)
  redis.call('HDEL', keys.err(queue), id)
  end_limits(queue, id, 'cancelled')
  live_remove(schedule, id)
end

-- Give a run up, and keep it for inspection; the oldest go when there are more than `cap`, 100 at a time.
local function give_up(queue, id, now, cap, err)
  redis.call('ZADD', keys.dead(queue), whole(now), id)
  if err ~= '' then
    redis.call('HSET', keys.err(queue), id, err)
  end
  end_limits(queue, id, 'dead', err)
  local excess = math.min(redis.call('ZCARD', keys.dead(queue)) - cap, 100)
  if excess > 0 then
    local old = redis.call('ZRANGE', keys.dead(queue), 0, excess - 1)
    redis.call('ZREM', keys.dead(queue), unpack(old))
    redis.call('HDEL', keys.data(queue), unpack(old))
    redis.call('HDEL', keys.att(queue), unpack(old))
    redis.call('HDEL', keys.err(queue), unpack(old))
  end
end
