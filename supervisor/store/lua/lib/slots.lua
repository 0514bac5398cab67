-- Library of the turn: slots of concurrency keys, and those that wait for one.
-- Includes  promote
local LOOK_MAX, STEP_MIN, WOKEN_MAX = 200, 20, 8

-- Everything below is of one turn `t`: open queues, session, letter, want, wheel, now, now_us, want_suspect, give, count,
-- due_at.
local t

-- Whether behind the first in a list of those that wait for a slot there are `count` more that do.
local function are_behind(queue, wait, key, count)
  local ids = redis.call('LRANGE', wait, 1, count + LOOK_MAX)
  if #ids < count then return false end
  local live = 0
  for _, blocked in ipairs(redis.call('HMGET', keys.blocked(queue), unpack(ids))) do
    live = live + (blocked == key and 1 or 0)
  end
  return live >= count
end

-- Of the runs that wait for a slot and replace others, only the newest are still wanted.
local SUPERSEDED_MAX = 100
local function supersede(queue, id, data)
  redis.call('HDEL', keys.blocked(queue), id)
  erase(queue, id)
  end_limits(queue, id, 'replaced')
  live_remove('', id, 'replaced')
  history_add(queue, t.history, id, 'replaced', job_of(data), 'a newer run took its place before it began', t.now)
  t.count(queue, 'replaced')
end

-- Runs that wait for a slot of a key come back to the head of their lists, as many as there is room for. Each is judged
-- again when it is taken.
local function wake(queue)
  local keys = read('SRANDMEMBER', keys.woken(queue), WOKEN_MAX) or {}
  if #keys == 0 or not read('HLEN', keys.blocked(queue)) then return end
  local heads, rung, looked, superseded = {}, {}, 0, 0
  for _, key in ipairs(keys) do
    local wait, held = keys.wait(queue, key), read('SCARD', keys.limit_slots(key))
    while held and looked < 2 * STEP_MIN and read('LLEN', wait) do
      looked = looked + 1
      local id = redis.call('LINDEX', wait, 0)
      if not id then
        redis.call('SREM', keys.limit_queues(key), queue)
        redis.call('SREM', keys.woken(queue), key)
        break
      end
      local is_waiting = redis.call('HGET', keys.blocked(queue), id) == key
      local data = is_waiting and redis.call('HGET', keys.data(queue), id)
      local of = data and limits_in(header_of(data) or '')
      local max = of and of.max
      local is_over = max and of.is_replacing and superseded < SUPERSEDED_MAX and are_behind(queue, wait, key, max)
      if is_over then
        looked, superseded = looked - 1, superseded + 1
        redis.call('LPOP', wait)
        supersede(queue, id, data)
      elseif max and held >= max then
        if of.is_replacing then
          ask_to_yield(key, redis.call('LLEN', wait))
        end
        redis.call('SREM', keys.woken(queue), key) -- the end of a holder will tell again
        break
      else
        redis.call('LPOP', wait)
        if data then
          redis.call('HDEL', keys.blocked(queue), id)
          add(heads, ready(queue, data), id)
          rung[string.sub(head_of(data), 1, 1)] = true
          held = held + 1
        elseif is_waiting then
          t.count(queue, 'cancelled')
          forget(queue, '', id)
        end
      end
    end
    told[key] = nil
  end
  make_ready(heads, {})
  rung[t.letter] = looked >= 2 * STEP_MIN or nil -- more than one turn can look at
  for kind in pairs(rung) do
    ring(queue, kind, 1)
  end
end

-- Whether the slot that `me` would take is free; healed where it is held by runs that do not run.
local function has_slot(of, me)
  local key = of.slots
  local held = t.slots[key]
  if not held then
    held, t.keys = read('SCARD', key), t.keys - 1
  end
  if not held then return nil end
  t.slots[key] = held
  if held < of.max then return true end
  if t.healed[key] or t.heals >= HEALED_MAX then return false end
  t.healed[key], t.heals = true, t.heals + 1
  for _, holder in ipairs(redis.call('SRANDMEMBER', key, SAMPLE)) do
    local queue, id = string.match(holder, '^(%S+) (%S+)$')
    if not t.admitted[holder] and (not queue or redis.pcall('HEXISTS', keys.run(queue), id) == 0) then
      t.slots[key] = t.slots[key] - redis.call('SREM', key, holder)
    end
  end
  return t.slots[key] < of.max
end
