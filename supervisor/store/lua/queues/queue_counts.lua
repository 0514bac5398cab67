-- Read how a queue stands. Changes nothing of ours.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
-- Includes  clock
--
-- Returns  now_ms, six ready counts (async high, normal, low, then sync), two suspect counts (async, sync), running,
--          later, dead, next_due_ms or empty, whether it is paused, why, heads of the six ready lists (data or empty),
--          how many wait for a concurrency key, then the counters as name, value …; none of them where somebody else wrote
--          very many
--          Entries that no longer stand for a run (lib/queue.lua) are not counted.
local reply = { whole(now_ms()) }
local heads, stale, STALE_MAX, COUNTERS_MAX, COUNTER_MAX = {}, {}, 1000, 100, 64
if redis.call('HLEN', keys.stale(queue)) <= STALE_MAX then -- else it is not worth the time
  local entries = ours('HDEL', keys.stale(queue), redis.call('HGETALL', keys.stale(queue)), 2)
  for n = 1, #entries, 2 do
    local part = string.match(entries[n], '^(%S+) ')
    stale[part or ''] = (stale[part or ''] or 0) + (foreign(entries[n + 1]) or 0)
  end
end

local function length(part)
  return math.max(0, redis.call('LLEN', keys.queue(queue) .. part) - (stale[part] or 0))
end

for _, letter in ipairs({ 'a', 's' }) do
  for priority = 0, 2 do
    local list = parts.ready(letter, priority)
    reply[#reply + 1] = length(list)
    local id = entry_of(keys.queue(queue) .. list, 0)
    heads[#heads + 1] = id and short(keys.data(queue), id) or ''
  end
end
reply[#reply + 1] = length(parts.suspect('a'))
reply[#reply + 1] = length(parts.suspect('s'))
reply[#reply + 1] = redis.call('HLEN', keys.run(queue))
reply[#reply + 1] = redis.call('ZCARD', keys.later(queue))
reply[#reply + 1] = redis.call('ZCARD', keys.dead(queue))
local head = ours('ZREM', keys.later(queue), redis.call('ZRANGE', keys.later(queue), 0, 0, 'WITHSCORES'), 2)
reply[#reply + 1] = head[2] or ''
reply[#reply + 1] = redis.call('EXISTS', keys.paused(queue))
reply[#reply + 1] = short(keys.paused(queue)) or ''
for _, data in ipairs(heads) do
  reply[#reply + 1] = data
end
reply[#reply + 1] = redis.call('HLEN', keys.blocked(queue))
if redis.call('HLEN', keys.stat(queue)) <= COUNTERS_MAX then -- ours are some thirty
  for _, item in ipairs(ours('HDEL', keys.stat(queue), redis.call('HGETALL', keys.stat(queue)), 2)) do
    reply[#reply + 1] = string.sub(item, 1, COUNTER_MAX)
  end
end
return reply
