-- Give back runs whose worker cannot acknowledge them any more.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  session        that holds them
--       history        how many ended attempts each queue remembers
--       dead_cap       how many dead runs each queue keeps
--       detail         what ended their process, for people; may be empty
--       items...       queue, id, how: once for each run. How is unstarted, interrupted, vanished, crashed or suspect, the
--                      last two with `pre` in front if it never began; behind it ` <attempt>|<fetched_ms>` where only
--                      that execution is meant, and not any of the session's
-- Includes  room
--           run
--
-- Returns  how many the session held, then for each of these that ended instead of going back
--          queue, id, why (crashed, lost or cancelled), attempt, job, schedule; the last two empty where nobody can read them
--
-- One that the session does not hold is left alone, so that two callers, or one that repeats itself, do no harm.
--
-- To the head of those that wait, for its concurrency key and its rate too. A crash is charged, and the run goes on alone: the
-- first time at once, since machines kill processes, too, then after 5 and 30 s, so that a poisonous one cannot storm; at its
-- last it is dead. A run that was in flight beside others when the process died runs alone next. A lost replica charges nobody, but a run
-- may be what takes it down: one that was executed in more than LOSSES_FREE of them, with no other end of an execution in
-- between, runs alone, and is dead at LOSSES_MAX. What must not run twice and may have begun is dead: "lost". A run whose
-- end a person asked for, which its worker did not live to obey, ends cancelled.
local FIELDS, DELAYS_MS, CRASHES_MAX = 3, { 0, 5000, 30000 }, 1000 -- as in job_options
local LOSSES_MAX = 6
local HOW = { unstarted = true, interrupted = true, vanished = true, crashed = true, suspect = true, precrashed = true,
  presuspect = true }
local detail = string.gsub(string.sub(detail or '', 1, 200), '[%c|]', '/')
local reclaimed = detail == '' and 'reclaimed' or 'reclaimed: ' .. detail
if session == '' or not_whole(history, dead_cap) or (#ARGV - FIRST + 1) % FIELDS ~= 0 then
  return refuse('history, dead_cap, detail and items of 3 fields')
end
local history, dead_cap = tonumber(history), tonumber(dead_cap)
for i = FIRST, #ARGV, FIELDS do
  local queue, id, how = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if not HOW[string.match(how, '^%l+')] then return refuse('how ' .. how) end
  for _, hash in ipairs({ keys.run(queue), keys.data(queue), keys.att(queue), keys.err(queue), keys.limits(queue) }) do
    redis.call('HLEN', hash) -- raises, before the first write, if a key is not ours
  end
  redis.call('ZCARD', keys.later(queue))
  redis.call('ZCARD', keys.dead(queue))
  local data = redis.call('HGET', keys.data(queue), id)
  if data then
    redis.call('LLEN', keys.suspect(queue, string.sub(data, 1, 1)))
    redis.call('LLEN', ready(queue, data))
  end
end

local now = now_ms()

local reply = { 0 }

local function tell(queue, id, why, attempt, data)
  for _, value in ipairs({ queue, id, why, whole(natural(attempt) or 0), job_and_schedule(data) }) do
    reply[#reply + 1] = value
  end
end

local function kill(queue, id, attempt, data, reason)
  local err = cjson.encode({ reason = reason, session = session, attempt = natural(attempt) or 0, at_ms = whole(now),
    detail = detail ~= '' and detail or nil })
  give_up(queue, id, now, dead_cap, err)
  live_remove(schedule_of(id, data), id, 'dead')
  count_add(queue, 'dead', 1)
  tell(queue, id, reason, attempt, data)
  return reason
end

-- Count one more lost replica in the record of the run's last failure, which its end or next failure replaces; see
-- forget_losses.
local function losses_of(queue, id, attempt)
  local err = redis.call('HGET', keys.err(queue), id) or ''
  local rest, losses = string.match(err, '^(.*),"losses":(%d%d?)}$')
  losses = (tonumber(losses) or 0) + 1
  rest = rest or string.match(err, '^({.+)}$') or '{"reason":"interrupted","attempt":' .. whole(natural(attempt) or 0)
  redis.call('HSET', keys.err(queue), id, rest .. ',"losses":' .. whole(losses) .. '}')
  return losses
end

local function put_back(queue, id, how, has_begun, attempt, data, template)
  local attempts, crashes, interrupts = charges(redis.call('HGET', keys.att(queue), id))
  local letter = string.sub(data, 1, 1)
  crashes = crashes + (how == 'crashed' and 1 or 0)
  local is_interruption = how == 'interrupted' or how == 'vanished' or how == 'suspect'
  interrupts = interrupts + (is_interruption and 1 or 0) -- so that the fence a job sees grows
  if crashes + interrupts + attempts > 0 then
    redis.call('HSET', keys.att(queue), id, whole(attempts) .. ',' .. whole(crashes) .. ',' .. whole(interrupts))
  end
  if has_begun and template['at_most_once'] == true then return kill(queue, id, attempt, data, 'lost') end
  local losses = how == 'vanished' and losses_of(queue, id, attempt) or 0
  if how == 'interrupted' then
    forget_losses(queue, id)
  end
  if losses >= LOSSES_MAX then return kill(queue, id, attempt, data, 'crashed') end
  local pause = 0
  if how == 'crashed' then
    if crashes >= math.min(CRASHES_MAX, tonumber(template['max_crashes']) or 3) then
      return kill(queue, id, attempt, data, 'crashed')
    end
    pause = DELAYS_MS[math.min(crashes, #DELAYS_MS)]
  end
  if pause > 0 then
    redis.call('ZADD', keys.later(queue), whole(now + pause), id)
  elseif how == 'crashed' or how == 'suspect' or losses > LOSSES_FREE then
    redis.call('RPUSH', keys.suspect(queue, letter), id)
  else
    go_back(queue, id, data, crashes)
  end
  ring(queue, letter, 1)
  return how == 'vanished' and 'interrupted' or how
end

local function note(queue, id, outcome, attempt, fetched, template)
  local job = string.gsub(tostring(template['job'] or ''), '|', '/')
  history_add(queue, history, id, outcome, job, reclaimed, now, attempt or '', session, fetched or '')
end

for i = #ARGV - FIELDS + 1, FIRST, -FIELDS do -- backwards: the head keeps their order
  local queue, id, asked, fence = ARGV[i], ARGV[i + 1], string.match(ARGV[i + 2], '^(%l+) ?(.*)$')
  local how = string.gsub(asked, '^pre', '')
  local has_begun = how == asked and how ~= 'unstarted'
  local token = redis.call('HGET', keys.run(queue), id) or ''
  if string.sub(token, 1, #session + 1) == session .. '|' and (fence == '' or token == session .. '|' .. fence) then
    local attempt, fetched = string.match(token, '|(%d+)|(%d+)$')
    local data = redis.call('HGET', keys.data(queue), id)
    redis.call('HDEL', keys.run(queue), id)
    release_all(queue, { id }, false)
    reply[1] = reply[1] + 1
    if data and is_cancelled(queue, id, token) then
      redis.call('HDEL', keys.data(queue), id)
      forget(queue, schedule_of(id, data), id)
      count_add(queue, 'cancelled', 1)
      note(queue, id, 'cancelled', attempt, fetched, (template_of(data)))
      tell(queue, id, 'cancelled', attempt, data)
    elseif data then
      local template = template_of(data)
      local ended = put_back(queue, id, how, has_begun, attempt, data, template)
      count_add(queue, 'reclaim_' .. (how == 'vanished' and 'interrupted' or how), 1)
      if ended ~= 'unstarted' and ended ~= 'suspect' then
        note(queue, id, ended, attempt, fetched, template)
      end
    else
      forget(queue, nil, id)
      count_add(queue, 'cancelled', 1)
    end
  end
end
return reply
