-- Library of fire: what is known of the schedules and runs of all items, before and while they are decided.
-- Includes  fire_items
--           place
--           state
local LATEST = 100 -- unfinished runs known of a schedule that waits for none
local marks, defs, lives, states, pauses, scores -- by place, as Redis has them
local running, packed, extended, wanted = {}, {}, {}, {} -- by place: live runs, state, and score once they are touched
local log, twins = {}, {}
local PROMISED_MAX = 100000
local promised, promised_room = {}, 0 -- until when runs must have ended, and how many more may be watched
local now, at, limit, term, is_ahead

local verified = {}
local function verify(queue)
  if not verified[queue] then
    verified[queue] = true
    check_queue(queue)
  end
end

-- Read what is known of the schedules and runs of all items. Raises, before the first write, if a key is not ours.
local function read_schedules(current, skew_ms, asked_ms)
  redis.call('HLEN', keys.schedule_wait)
  redis.call('HLEN', keys.schedule_invalid)
  promised_room = PROMISED_MAX - (inform('ZCARD', keys.schedule_promised) or PROMISED_MAX)
  marks = redis.call('HMGET', keys.schedule_mark, unpack(names))
  defs = redis.call('HMGET', keys.schedule_def, unpack(names))
  lives = redis.call('HMGET', keys.schedule_live, unpack(names))
  states = redis.call('HMGET', keys.schedule_state, unpack(names))
  pauses = redis.call('HLEN', keys.schedule_paused) > 0 and redis.call('HMGET', keys.schedule_paused, unpack(names)) or {}
  scores = redis.call('ZMSCORE', keys.schedule_next, unpack(names))
  now, limit = now_ms(), tonumber(skew_ms)
  is_ahead = tonumber(asked_ms) > now + limit -- the caller's clock is: what it judged by the time is no fact
  at, term = whole(now), current
  for n = 1, #names do
    marks[n] = moment(marks[n]) or '0'
  end
  for _, item in ipairs(items) do -- what may have to give way lies in these
    for queue in string.gmatch(item.policy.overlap ~= 'allow' and lives[item.n] or '', '(%S+) [^\n]+') do
      verify(queue)
    end
  end
  for _, group in ipairs(groups) do
    verify(group.queue)
    for k, data in ipairs(redis.call('HMGET', keys.data(group.queue), unpack(group.ids))) do
      group.known[group.ids[k]] = data and true or nil
    end
  end
end

-- Make the runs of a group exist that are new.
local function flush(group)
  if #group.new > 0 then
    redis.call('HSET', keys.data(group.queue), unpack(group.new))
    group.new = {}
  end
end

-- Where nothing is held up, no list is checked: the latest runs are enough to find the end of the last one. What is
-- older, or was left behind by a run whose end nobody heard of, leaves the list at its far end.
local function latest(n)
  local found = {}
  for line in string.gmatch(running[n] and '' or lives[n] or '', '%S+ [^\n]+') do
    found[#found + 1] = line
  end
  running[n] = running[n] or found
  while #running[n] >= LATEST do
    table.remove(running[n], 1)
  end
  return running[n]
end

-- Unfinished runs of a schedule.
local function live(n)
  running[n] = running[n] or unfinished_of(lives[n])
  return running[n]
end

local function state(n)
  packed[n] = packed[n] or state_open(states[n] or '')
  return packed[n]
end
