-- Library: limits, and with them how a run comes into being, and what it holds.
--
-- A run's limits stand in front of its envelope, `<kind><priority>[<limits>]<json>`, parted by semicolons (core/jobs/limits.py):
-- `u<key>` unique, `c<max>:<key>` concurrency, `r<count>/<per_ms>:<key>` rate. Every run is judged by its own
-- numbers, those that wait for a slot by that of the newest of them.
-- `x`: where all slots of its concurrency key are taken, the oldest that holds one is asked to give way to it.
-- `p<length>` is no limit: so much of its id is the id of the run that counts it among its own (adr/0030).
--
--   q:<queue>:limits      hash    id to `[…]` of a run that exists and is not dead, where it is unique, limited at once, or
--                                 counted by another
--   q:<queue>:blocked     hash    id to the concurrency key that it waits for: the place of such a run
--   q:<queue>:wait:<key>  list    their ids, in order: one that comes back unfinished, or failed, first. One that `blocked` does
--                                 not have with this key is skipped
--   q:<queue>:woken       set     concurrency keys that may have room again; the next turn looks
--   limit:u               hash    unique key to `queue id` of the unfinished run that holds it. A holder whose `limits` do
--                                 not say so is gone, and gives way
--   limit:c:<key>         set     `queue id` of the runs that hold a slot: exactly runs that are in `run`
--   limit:q:<key>         set     queues in which runs wait for a slot
--   limit:w:<key>         zset    expires: of several such queues those that are served, in the order in which they have a slot
--   limit:n               hash    concurrency key to `queue id` of the newest run that replaces others
--   limit:r:<key>         string  `tat_us 0`, expires: GCRA by the server's time
--   q:<queue>:rate:<kind>:<key>  zset  expires: runs that came too early for a rate, by when they first did (`came_at`), behind those
--                                 that come back unfinished, or failed. They wait in `later`, each until it may start; one starts only if
--                                 all in front of it could start as well
--
-- A slot is given with `run` and taken with it, in one script, so it cannot leak; where one leaked all the same (a key
-- deleted by hand), whoever finds all slots taken checks some holders, and frees those that do not run.
-- Includes  queue
local HEALED_MAX, SAMPLE = 4, 8
local WAITED = '0,0,0' -- charged with nothing: it came to its turn before, and is no newer when it comes back

-- Whether a run was brought for the slot that it waited for, by a turn of the other kind, and so goes before what waits: `att` is
-- WAITED, or has a 0 in front of what it charges, which reads as the same numbers, and whoever charges it again leaves out.
local function has_place(att)
  return att == WAITED or string.find(att or '', '^0%d') ~= nil
end

local parsed = {} -- many runs of one script share theirs; nobody changes what is in here
local function limits_in(header)
  local of = parsed[header]
  if of then return of end
  of = {}
  if #header > HEADER_MAX then return of end
  parsed[header] = of
  for part in string.gmatch(header, '[^%[%];]+') do
    local letter = string.sub(part, 1, 1)
    if letter == 'u' then
      of.unique = string.sub(part, 2)
    elseif letter == 'c' then
      of.max, of.concurrency = string.match(part, '^c(%d+):(.+)$')
      of.max, of.slots = foreign(of.max), keys.limit_slots(of.concurrency or '')
    elseif letter == 'x' then
      of.is_replacing = true
    elseif letter == 'r' then
      of.count, of.per_ms, of.rate = string.match(part, '^r(%d+)/(%d+):(.+)$')
      of.count, of.per_ms = foreign(of.count), foreign(of.per_ms)
    elseif letter == 'p' then
      of.above = foreign(string.sub(part, 2))
    end
  end
  return of
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

-- How many runs of a queue are neither executed nor dead.
local function waiting(queue)
  return redis.call('HLEN', keys.data(queue)) - redis.call('HLEN', keys.run(queue)) - redis.call('ZCARD', keys.dead(queue))
end

-- What a run that exists holds; nothing where no header of ours is written.
local function limits_of(queue, id)
  local is_read, header = pcall(short, keys.limits(queue), id)
  return limits_in(is_read and header or '')
end

-- `queue id` of the run that holds a key of `limit:u` or `limit:n`; nil for none, or for what is none of ours.
local function holder_in(hash, key)
  local holder = redis.pcall('HGET', hash, key)
  return type(holder) == 'string' and ours('HDEL', hash, { key, holder }, 2)[2] or nil
end

-- Take what a run holds as long as it exists; `queue id` of the holder, and nothing written, if its unique key is taken.
local function claim(queue, id, data)
  local header = header_of(data)
  local of = header and limits_in(header) or {}
  if of.unique then
    local held, me = keys.limit_unique, queue .. ' ' .. id
    local holder = holder_in(held, of.unique)
    if holder and holder ~= me then
      local its_queue, its_id = string.match(holder, '^(%S+) (%S+)$')
      if its_id and limits_of(its_queue, its_id).unique == of.unique
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

-- An id comes to be anew: how an earlier run of it ended is no end of this one, nor what it said of itself its progress.
local function forget_end(id)
  redis.pcall('DEL', keys.result(id), keys.ended(id))
  redis.pcall('DEL', keys.progress(id)) -- by itself: a producer with the rights of an earlier version has none to it
end

-- Make a run exist; false if its id is there already: an id names one run. The caller then puts it into a place.
-- False and `queue id` of the holder, if another unfinished run holds its unique key.
local function create(queue, id, data)
  if string.byte(data, 3) ~= 91 then
    local is_new = redis.call('HSETNX', keys.data(queue), id, data) == 1
    if is_new then
      forget_end(id)
    end
    return is_new
  end
  if redis.call('HEXISTS', keys.data(queue), id) == 1 then return false end
  local holder = claim(queue, id, data)
  if holder then return false, holder end
  redis.call('HSET', keys.data(queue), id, data)
  forget_end(id)
  return true
end

-- How a run came to an end before it began: another one holds its unique key, or a run that is not its own has its id. One
-- of the same origin is it, as a former life of its parent left it, and no word is said.
local TAKEN = 'its id is taken by another run'
local function refuse_twin(queue, id, data, holder, cap, now)
  if not holder and origin_of(short(keys.data(queue), id)) == origin_of(data) then return 'duplicate' end
  local outcome = holder and 'duplicate' or 'rejected'
  local why = holder and 'its unique key is held by ' .. string.gsub(holder, '^%S+ ', '') or TAKEN
  history_add(queue, cap, id, outcome, job_of(data), why, now)
  count_add(queue, outcome, 1)
  return outcome
end

-- Like what wakes workers, nothing below stops the end of a run: a foreign key in the way is left alone.

-- How many may run at once by the limits of a run that exists; nil where that is not known.
local function max_of(queue, id)
  return type(id) == 'string' and limits_of(queue, id).max or nil
end

-- A slot of `key` may be free: whoever takes runs from a queue in which some wait for it will look. Of very many queues
-- some are told, but always `own`, of the run that leaves it, which tells others until one has a run for the slot (`wake` in
-- lib/waiting.lua), fewer at a time, and by how many are `held` only those with room; those where none waits are struck off.
-- Returns whether very many may not have been told.
local told, TOLD_MAX, TOLD_AGAIN = {}, 500, 20
local function tell_waiting(key, own, held)
  if told[key] ~= nil then return told[key] end
  local known = redis.pcall('SCARD', keys.limit_queues(key))
  local is_many = type(known) == 'number' and known > TOLD_MAX
  told[key] = is_many and not held
  if not is_many and (held or 0) > 0 then return false end -- all were told when a holder ended
  local waiting = redis.pcall('SRANDMEMBER', keys.limit_queues(key), is_many and held and TOLD_AGAIN or TOLD_MAX)
  waiting = ours('SREM', keys.limit_queues(key), waiting)
  waiting[#waiting + 1] = is_many and own or nil
  for _, queue in ipairs(waiting) do
    local last = not is_many or queue == own or entry_of(keys.wait(queue, key), -1)
    if not last then
      redis.pcall('SREM', keys.limit_queues(key), queue)
      told[key] = true
    elseif (held or 0) == 0 or held < (max_of(queue, last) or math.huge) then -- its number is that of all who wait there
      redis.pcall('SADD', keys.woken(queue), key)
      ring(queue, 'a', 1)
      ring(queue, 's', 1)
      told[key] = is_many
    end
  end
  return told[key]
end

-- A run that leaves its queue without a start leaves the line of its rate too; the first of those behind it looks at once.
local function leave_line(queue, id, data)
  local header = header_of(data)
  local rate, kind = header and limits_in(header).rate, string.sub(data, 1, 1)
  local line = rate and keys.rate(queue, kind, rate)
  if line and redis.pcall('ZREM', line, id) == 1 then
    local first = ours('ZREM', line, redis.pcall('ZRANGE', line, 0, 0))[1]
    if first then
      redis.pcall('ZADD', keys.later(queue), 'XX', 'LT', whole(now_ms()), first)
      ring(queue, kind, 1)
    end
  end
end

-- Put runs, the oldest first, in front of all that wait in the line of a rate.
local LINE_MS, RATE_LINE_MS = 86400000, 2592000000 -- stopped for weeks, those that wait for a rate stay in it
local function lead_line(line, ids)
  local first = redis.pcall('ZRANGE', line, 0, 0, 'WITHSCORES')[2]
  first = (tonumber(first or nil) or 1000 * now_ms()) - #ids - 1
  for n, id in ipairs(ids) do
    redis.pcall('ZADD', line, whole(first + n), id)
  end
  redis.pcall('PEXPIRE', line, RATE_LINE_MS)
end

-- A run that comes back unfinished is the oldest of those that wait: it goes to the head of the line of its rate, and to that
-- of those that wait for its concurrency key, who come to the head of its list before it; if none does, to the head of that.
-- Where newer runs replace older ones, the place in the line says who is replaced.
local function to_head(queue, id, data)
  local header = header_of(data)
  local of = header and limits_in(header) or {}
  if of.rate then
    lead_line(keys.rate(queue, string.sub(data, 1, 1), of.rate), { id })
  end
  local key = not of.is_replacing and of.concurrency
  local waiting = key and redis.pcall('LLEN', keys.wait(queue, key))
  if type(waiting) == 'number' and waiting > 0
    and type(redis.pcall('HSET', keys.blocked(queue), id, key)) == 'number' then
    redis.call('LPUSH', keys.wait(queue, key), id)
    redis.pcall('SADD', keys.woken(queue), key) -- it may have room where those behind it had none
  else
    redis.call('LPUSH', ready(queue, data), id)
  end
end

-- These runs run no more. With `is_end` they are over, else they go on later. Those without limits cost one command.
-- Returns which of them are over and counted by another run: id to how much of it is that one's; nil for none.
local function release_all(queue, ids, is_end)
  local hash = keys.limits(queue)
  local known = redis.pcall('HLEN', hash)
  if #ids == 0 or type(known) ~= 'number' or known == 0 then return nil end
  local gone, counted = {}, nil
  for n, header in ipairs(redis.call('HMGET', hash, unpack(ids))) do
    if header then
      local of, me = limits_in(header), queue .. ' ' .. ids[n]
      if is_end then
        gone[#gone + 1] = ids[n]
        if of.unique and holder_in(keys.limit_unique, of.unique) == me then
          redis.pcall('HDEL', keys.limit_unique, of.unique)
        end
        if of.is_replacing and holder_in(keys.limit_newest, of.concurrency or '') == me then
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
        tell_waiting(of.concurrency, queue) -- also of one that held none: it may have been woken in another's place
      end
    end
  end
  if #gone > 0 then
    redis.call('HDEL', hash, unpack(gone))
  end
  return counted
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
    token = type(token) == 'string' and #token <= MEMBER_MAX and token
    local request = token and redis.pcall('HGET', keys.cancel(queue), id)
    request = type(request) == 'string' and string.sub(request, 1, 2 * MEMBER_MAX)
    if request and string.find(request, token, 1, true) then
      if asked < wanted and string.find(request, '^cancel|') then -- it stands; but nobody waits for its run without a bound
        redis.pcall('HSET', keys.cancel(queue), id, 'force|' .. token .. '|' .. whole(now + YIELD_MS))
      end
      asked = asked + 1
    elseif token then
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

-- Whether a run is known to be the newest with its key: once that one has ended, none of those that are left is.
local function is_newest(queue, id, of)
  return holder_in(keys.limit_newest, of.concurrency) == queue .. ' ' .. id
end

-- A run that may begin replaces older ones with its key, if it is of that sort: also while no worker is free to take it.
local function replace_older(queue, id, data)
  local header = header_of(data)
  local of = header and limits_in(header)
  if not of or not of.is_replacing then return end
  redis.pcall('HSET', keys.limit_newest, of.concurrency, queue .. ' ' .. id)
  local held = redis.pcall('SCARD', of.slots)
  if type(held) == 'number' and of.max and held >= of.max then
    ask_to_yield(of.concurrency, held - of.max + 1)
  end
end

-- A run that was not started waits until `due`. Of those that replace others it is no newer when it comes back: it is charged,
-- with nothing. Any other is, and has no age, nor its place.
local function put_off(queue, id, data, att, due)
  local header = (not att or att == WAITED) and header_of(data)
  if header and limits_in(header).is_replacing then
    redis.call('HSET', keys.att(queue), id, WAITED)
  elseif att == WAITED or string.find(att or '', WAITED .. ',', 1, true) == 1 then
    redis.call('HDEL', keys.att(queue), id)
  elseif has_place(att) then
    redis.call('HSET', keys.att(queue), id, string.sub(att, 2))
  end
  note_asked(queue, id, att)
  redis.call('ZADD', keys.later(queue), whole(due), id)
end

-- Make a run exist, and put it where it waits: `wait` ms from now, or ready. Answers whether it is new, else how it ended at
-- once, which the history, of up to `cap`, says as well.
local function admit(queue, id, data, wait, cap)
  local is_new, holder = create(queue, id, data)
  if not is_new then return false, refuse_twin(queue, id, data, holder, cap, now_ms()) end
  redis.call('SADD', keys.queues, queue)
  if wait > 0 then
    delay(queue, id, data, now_ms() + wait)
  else
    replace_older(queue, id, data)
    redis.call('RPUSH', ready(queue, data), id)
    ring(queue, string.sub(data, 1, 1), 1)
  end
  count_add(queue, 'in', 1)
  return true
end
