-- Library: how a run ends.
-- Includes  fanout
--           ended

-- Free what a run holds, at any end of it but those that a turn settles, and tell who waits. May be called twice.
local function end_limits(queue, id, outcome, err)
  tell_any_end(id, outcome)
  local counted = release_all(queue, { id }, true)
  if counted then
    tally_end(id, counted[id], outcome, err)
    if not tallies.is_held then
      tally_settle()
    end
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
    erase(queue, unpack(old))
  end
end

-- An execution ended without taking its replica along: lost replicas (release_runs.lua) are counted anew from here on.
local function forget_losses(queue, id)
  local rest = string.match(redis.call('HGET', keys.err(queue), id) or '', '^(.*),"losses":%d%d?}$')
  if rest then
    redis.call('HSET', keys.err(queue), id, rest .. '}')
  end
end
