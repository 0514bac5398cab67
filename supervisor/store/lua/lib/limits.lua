-- Library: limits, and with them how a run comes into being and how it goes. Include it after `queue`.
--
-- A run's limits stand in front of its envelope, `<kind><priority>[<limits>]<json>`, parted by semicolons (core/limits.py):
-- `u<key>` unique, `c<max>:<key>` concurrency, `r<count>/<per_ms>:<key>` rate. Every run is judged by its own numbers.
--
--   q:<queue>:limits      hash    id to `[…]` of a run that exists and is not dead, where it is unique or limited at once
--   q:<queue>:blocked     hash    id to the concurrency key that it waits for: the place of such a run
--   q:<queue>:wait:<key>  list    their ids, in order. One that `blocked` does not have with this key is skipped
--   q:<queue>:woken       set     concurrency keys that may have room again; the next turn looks
--   limit:u               hash    unique key to `queue id` of the unfinished run that holds it. A holder whose `limits` do
--                                 not say so is gone, and gives way
--   limit:c:<key>         set     `queue id` of the runs that hold a slot: exactly runs that are in `run`
--   limit:q:<key>         set     queues in which runs wait for a slot
--   limit:r:<key>         string  `tat_us next_us`, expires: GCRA by the server's time, and when the next early run is
--                                 to try again. An early run waits in `later`, at a time of its own
--
-- A slot is given with `run` and taken with it, in one script, so it cannot leak; where one leaked all the same (a key
-- deleted by hand), whoever finds all slots taken checks some holders, and frees those that do not run.
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
      of.max, of.slots = tonumber(of.max), KEYS[1] .. 'limit:c:' .. (of.concurrency or '')
    elseif letter == 'r' then
      of.count, of.per_ms, of.rate = string.match(part, '^r(%d+)/(%d+):(.+)$')
      of.count, of.per_ms = tonumber(of.count), tonumber(of.per_ms)
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
  redis.call('SCARD', KEYS[1] .. 'queues')
  redis.call('HLEN', q(queue, 'data'))
  redis.call('HLEN', q(queue, 'stat'))
  redis.call('ZCARD', q(queue, 'later'))
  redis.call('LLEN', ready(queue, head))
  redis.call('LLEN', q(queue, 'bell:' .. string.sub(head, 1, 1)))
  if string.sub(head, 3, 3) ~= '{' then
    redis.call('HLEN', q(queue, 'limits'))
    redis.call('HLEN', KEYS[1] .. 'limit:u')
  end
end

-- Take what a run holds as long as it exists; `queue id` of the holder, and nothing written, if its unique key is taken.
local function claim(queue, id, data)
  local header = header_of(data)
  local of = header and limits_in(header) or {}
  if of.unique then
    local held, me = KEYS[1] .. 'limit:u', queue .. ' ' .. id
    local holder = redis.call('HGET', held, of.unique)
    if holder and holder ~= me then
      local its_queue, its_id = string.match(holder, '^(%S+) (%S+)$')
      local its = its_id and redis.pcall('HGET', q(its_queue, 'limits'), its_id)
      if type(its) == 'string' and limits_in(its).unique == of.unique
        and redis.pcall('HEXISTS', q(its_queue, 'data'), its_id) == 1 then
        return holder
      end
    end
    redis.call('HSET', held, of.unique, me)
  end
  if of.unique or of.concurrency then
    redis.call('HSET', q(queue, 'limits'), id, header)
  end
  return nil
end

-- Make a run exist; false if its id is there already: an id names one run. The caller then puts it into a place.
-- False and `queue id` of the holder, if another unfinished run holds its unique key.
local function create(queue, id, data)
  if string.byte(data, 3) ~= 91 then
    return redis.call('HSETNX', q(queue, 'data'), id, data) == 1
  end
  if redis.call('HEXISTS', q(queue, 'data'), id) == 1 then
    return false
  end
  local holder = claim(queue, id, data)
  if holder then
    return false, holder
  end
  redis.call('HSET', q(queue, 'data'), id, data)
  return true
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
  local waiting = redis.pcall('SMEMBERS', KEYS[1] .. 'limit:q:' .. key)
  for _, queue in ipairs(waiting['err'] and {} or waiting) do
    redis.pcall('SADD', q(queue, 'woken'), key)
    ring(queue, 'a', 1)
    ring(queue, 's', 1)
  end
end

-- These runs run no more. With `is_end` they are over, else they go on later. Those without limits cost one command.
local function release_all(queue, ids, is_end)
  local hash = q(queue, 'limits')
  local known = redis.pcall('HLEN', hash)
  if #ids == 0 or type(known) ~= 'number' or known == 0 then
    return
  end
  for n, header in ipairs(redis.call('HMGET', hash, unpack(ids))) do
    if header then
      local of, me = limits_in(header), queue .. ' ' .. ids[n]
      if is_end then
        redis.call('HDEL', hash, ids[n])
        if of.unique and redis.pcall('HGET', KEYS[1] .. 'limit:u', of.unique) == me then
          redis.pcall('HDEL', KEYS[1] .. 'limit:u', of.unique)
        end
      end
      if of.concurrency then
        redis.pcall('SREM', KEYS[1] .. 'limit:c:' .. of.concurrency, me)
        redis.pcall('HDEL', q(queue, 'blocked'), ids[n])
        tell_waiting(of.concurrency) -- also of one that held none: it may have been woken in another's place
      end
    end
  end
end

-- Free what a run holds, at any end of it. May be called twice.
local function end_limits(queue, id)
  release_all(queue, { id }, true)
end

-- Whether a person asked for the end of just this attempt: `token` is how its fence begins, whole parts of it.
local function is_cancelled(queue, id, token)
  local asked = redis.pcall('HGET', q(queue, 'cancel'), id)
  local how = type(asked) == 'string' and string.match(asked, '^(%l+)|')
  return (how == 'cancel' or how == 'force') and string.find(asked, token, #how + 2, true) == #how + 2
end

-- Clear away what is left of a run that was cancelled: its data is gone, so nothing else will.
local function forget(queue, schedule, id)
  redis.call('HDEL', q(queue, 'att'), id)
  redis.call('HDEL', q(queue, 'err'), id)
  end_limits(queue, id)
  live_remove(schedule, id)
end

-- Give a run up, and keep it for inspection; the oldest go when there are more than `cap`, 100 at a time.
local function give_up(queue, id, now, cap, err)
  redis.call('ZADD', q(queue, 'dead'), whole(now), id)
  if err ~= '' then
    redis.call('HSET', q(queue, 'err'), id, err)
  end
  end_limits(queue, id)
  local excess = math.min(redis.call('ZCARD', q(queue, 'dead')) - cap, 100)
  if excess > 0 then
    local old = redis.call('ZRANGE', q(queue, 'dead'), 0, excess - 1)
    redis.call('ZREM', q(queue, 'dead'), unpack(old))
    redis.call('HDEL', q(queue, 'data'), unpack(old))
    redis.call('HDEL', q(queue, 'att'), unpack(old))
    redis.call('HDEL', q(queue, 'err'), unpack(old))
  end
end
