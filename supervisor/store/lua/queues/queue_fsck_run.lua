-- Verify runs of a queue, each as it stands at this moment, and mend what is wrong.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--       is_mending     1: what is wrong is mended; 0: nothing is written
--       dead_cap       how many dead runs the queue keeps
--       how            all, or limits: what they hold of these alone, for which no list is searched
--       ids...         at most 100
-- Includes  place
--
-- Returns  id, what is wrong, what was done about it (or empty): for each fault
--
-- A run is in exactly one place: running, later, dead, blocked, or one entry of the list that its data names. An entry
-- of a list counts unless it is stale. What is mended loses nothing: a run in no place goes to the head of its list, one
-- in several keeps the one in which most has happened; what must not run twice and may have begun is dead: "lost". A user
-- of Redis who may not write what an end causes is refused (NOPERM) before anything is mended.
if not_whole(dead_cap) or (is_mending ~= '0' and is_mending ~= '1') or (how ~= 'all' and how ~= 'limits') or #ARGV < FIRST or #ARGV > FIRST + 99 then
  return refuse('is_mending 0 or 1, dead_cap, how, and up to 100 ids')
end
local is_mending, dead_cap, now = is_mending == '1', tonumber(dead_cap), now_ms()
check_queue(queue)
redis.call('HLEN', keys.limit_unique)
if is_mending and not (may_write(keys.schedule_live) and may_write(keys.tally('id'))) then
  return redis.error_reply('NOPERM runs of schedules and of other runs may be among those, which are for users of trees to mend')
end
local reply = {}

-- Note a fault; whether it is to be mended.
local function tell(id, fault, remedy)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = id, fault, is_mending and remedy or ''
  return is_mending
end

-- How many entries of `id` each list has, without the stale ones; and says so if more are stale than there are.
local function entries_of(id)
  local found = {}
  for _, part in ipairs(waiting_lists()) do
    local list = keys.queue(queue) .. part
    local entries = #redis.call('LPOS', list, id, 'COUNT', 0)
    local stale = stale_count(queue, list, id)
    if stale > entries then
      if tell(id, 'counted as stale in ' .. part .. ' ' .. whole(stale - entries) .. ' times too often', 'counted anew') then
        if entries == 0 then
          redis.call('HDEL', keys.stale(queue), stale_field(queue, list, id))
        else
          redis.call('HSET', keys.stale(queue), stale_field(queue, list, id), whole(entries))
        end
      end
      stale = entries
    end
    if entries > stale then
      found[#found + 1] = { part, entries - stale }
    end
  end
  return found
end

local function drop_entries(id, part, count)
  for _ = 1, count do
    stale_add(queue, keys.queue(queue) .. part, id)
  end
end

local function put_at_head(id, data)
  local _, crashes = charges(redis.call('HGET', keys.att(queue), id))
  go_back(queue, id, data, crashes)
  ring(queue, string.sub(data, 1, 1), 1)
end

-- Whether its job must not run twice. Arguments may have any name: only the template's own field says so.
local function is_once(data)
  local template = string.find(data, '"at_most_once":true', 1, true) and template_of(data)
  return template and (not next(template) or template['at_most_once'] == true)
end

-- It may have begun, and nobody knows whether it ended. Returns 'dead' where it must not run twice.
local function put_back(id, data)
  if is_once(data) then
    give_up(queue, id, now, dead_cap, '{"reason":"lost","detail":"found in no place"}')
    live_remove(schedule_of(id, data), id, 'dead')
    return 'dead'
  else
    put_at_head(id, data)
  end
end

local function verify_remains(id, entries, token)
  if redis.call('ZSCORE', keys.dead(queue), id) and tell(id, 'dead without data', 'forgotten') then
    redis.call('ZREM', keys.dead(queue), id)
  end
  if redis.call('HEXISTS', keys.blocked(queue), id) == 1 and tell(id, 'blocked without data', 'forgotten') then
    redis.call('HDEL', keys.blocked(queue), id)
  end
  if token or #entries > 0 or redis.call('ZSCORE', keys.later(queue), id) then
    return -- cancelled: what is left goes when its id is met
  end
  for hash, words in pairs({ [keys.att(queue)] = 'charged without data', [keys.err(queue)] = 'an error without data' }) do
    if redis.call('HEXISTS', hash, id) == 1 and tell(id, words, 'forgotten') then
      redis.call('HDEL', hash, id)
    end
  end
  if redis.call('HEXISTS', keys.limits(queue), id) == 1 and tell(id, 'limits without data', 'forgotten') then
    end_limits(queue, id, 'cancelled')
  end
end

-- Keep one of several places; `place`: where it was just put.
local function verify_place(id, data, entries, token, place)
  local dead, later = redis.call('ZSCORE', keys.dead(queue), id), redis.call('ZSCORE', keys.later(queue), id)
  local key = redis.call('HGET', keys.blocked(queue), id)
  local own = string.sub(ready(queue, data), #keys.queue(queue) + 1)
  local suspects = parts.suspect(string.sub(data, 1, 1))
  local kept, names, extra = place or token and 'running', {}, 0
  for _, entry in ipairs(entries) do
    names[#names + 1] = whole(entry[2]) == '1' and entry[1] or entry[1] .. ' ' .. whole(entry[2]) .. ' times'
    if not kept and (entry[1] == own or entry[1] == suspects) then
      kept = entry[1]
    end
    extra = extra + entry[2]
  end
  for name, is_there in pairs({ running = token, blocked = key, later = later, dead = dead }) do
    names[#names + 1] = is_there and name or nil
    extra = extra + (is_there and 1 or 0)
  end
  kept = kept or key and 'blocked' or later and 'later' or dead and 'dead'
  table.sort(names)
  if extra == 0 then
    if tell(id, 'in no place: it would never run', 'put back') then
      kept = put_back(id, data)
    end
  elseif not kept then
    if tell(id, 'in ' .. table.concat(names, ' and ') .. ', but its data says ' .. own, 'put into ' .. own) then
      put_at_head(id, data)
      for _, entry in ipairs(entries) do
        drop_entries(id, entry[1], entry[2])
      end
    end
  elseif extra > 1 and tell(id, 'in several places: ' .. table.concat(names, ' and '), 'kept in ' .. kept) then
    for _, entry in ipairs(entries) do
      drop_entries(id, entry[1], entry[2] - (entry[1] == kept and 1 or 0))
    end
    for name, set in pairs({ later = keys.later(queue), dead = keys.dead(queue) }) do
      if name ~= kept then
        redis.call('ZREM', set, id)
      end
    end
    if kept ~= 'blocked' then
      redis.call('HDEL', keys.blocked(queue), id)
    end
  end
  return kept, key
end

-- What it holds of the cluster's limits must be what its data says.
local function verify_limits(id, data, place, key, token)
  local header, me = header_of(data), queue .. ' ' .. id
  local of = header and limits_in(header) or {}
  local written = redis.call('HGET', keys.limits(queue), id)
  if place == 'dead' then
    if written and tell(id, 'dead, and holds limits', 'freed') then
      end_limits(queue, id, 'dead')
    end
    return
  end
  if (of.unique or of.concurrency or of.above) and (written ~= header
    or of.unique and redis.call('HGET', keys.limit_unique, of.unique) ~= me) then
    local holder = is_mending and claim(queue, id, data)
    tell(id, holder and 'its unique key is held by ' .. holder or 'its limits are not written down',
      holder and '' or 'written down')
  end
  local slot = of.concurrency and redis.call('SISMEMBER', keys.limit_slots(of.concurrency), me) == 1
  if of.concurrency and token and not slot and tell(id, 'runs without a slot of ' .. of.concurrency, 'given one') then
    redis.call('SADD', keys.limit_slots(of.concurrency), me)
  elseif slot and not token and tell(id, 'holds a slot of ' .. of.concurrency .. ' and does not run', 'freed') then
    redis.call('SREM', keys.limit_slots(of.concurrency), me)
    tell_waiting(of.concurrency)
  end
  if how == 'all' and place == 'blocked' and not redis.call('LPOS', keys.wait(queue, key), id)
    and tell(id, 'blocked, and in no list of those that wait for ' .. key, 'put to its tail') then
    redis.call('RPUSH', keys.wait(queue, key), id)
    redis.call('SADD', keys.limit_queues(key), queue)
    redis.call('SADD', keys.woken(queue), key)
    ring(queue, string.sub(data, 1, 1), 1)
  end
end

local function verify_fence(id, data, token)
  local session = string.match(token, '^(.*)|%d+|%d+$')
  local is_known = session and (redis.call('HEXISTS', keys.sessions, session) == 1
    or redis.call('SISMEMBER', keys.dying, session) == 1)
  local fault = session and 'runs in session ' .. session .. ', which is neither open nor dying' or 'its fence cannot be read'
  if is_known or not tell(id, fault, 'put back') then return token end
  local attempts, crashes, interrupts = charges(redis.call('HGET', keys.att(queue), id))
  redis.call('HDEL', keys.run(queue), id)
  release_all(queue, { id }, false)
  if data then
    redis.call('HSET', keys.att(queue), id, whole(attempts) .. ',' .. whole(crashes) .. ',' .. whole(interrupts + 1))
    return nil, put_back(id, data)
  end
  forget(queue, nil, id)
  return nil
end

local function verify(id)
  local data, token = redis.call('HGET', keys.data(queue), id), redis.call('HGET', keys.run(queue), id)
  local charged = redis.call('HGET', keys.att(queue), id)
  if charged and not is_charge(charged) and tell(id, 'its charges cannot be read', 'forgotten') then
    redis.call('HDEL', keys.att(queue), id)
  end
  local place, key
  if token then
    token, place = verify_fence(id, data, token)
  end
  local entries = entries_of(id)
  if not data then return verify_remains(id, entries, token) end
  if not string.match(data, '^[as][012][{%[]') then
    if redis.call('ZSCORE', keys.dead(queue), id) or token then
      return -- its worker will say so, or it did
    elseif tell(id, 'its data cannot be read', 'given up') then
      redis.call('ZREM', keys.later(queue), id)
      redis.call('HDEL', keys.blocked(queue), id)
      for _, entry in ipairs(entries) do
        drop_entries(id, entry[1], entry[2])
      end
      give_up(queue, id, now, dead_cap, '{"reason":"unreadable","detail":"its data does not begin as it must"}')
      live_remove(schedule_of(id, data), id, 'dead')
    end
    return
  end
  place, key = verify_place(id, data, entries, token, place)
  verify_limits(id, data, place, key, token)
end

local function verify_held(id)
  local data, token = redis.call('HGET', keys.data(queue), id), redis.call('HGET', keys.run(queue), id)
  if data and string.match(data, '^[as][012][{%[]') then
    local key = redis.call('HGET', keys.blocked(queue), id)
    local place = redis.call('ZSCORE', keys.dead(queue), id) and 'dead' or key and 'blocked'
    verify_limits(id, data, place, key, token)
  end
end

local seen = {}
for n = FIRST, #ARGV do
  if not seen[ARGV[n]] then
    seen[ARGV[n]] = true
    if how == 'all' then
      verify(ARGV[n])
    else
      verify_held(ARGV[n])
    end
  end
end
return reply
