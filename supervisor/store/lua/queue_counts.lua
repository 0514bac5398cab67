-- Read how a queue stands. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--
-- Includes  clock
--
-- Returns  now_ms, six ready counts (async high, normal, low, then sync), two suspect counts (async, sync), running,
--          later, dead, next_due_ms or empty, whether it is paused, why, heads of the six ready lists (data or empty),
--          how many wait for a concurrency key, then the counters as name, value …
--          Entries that no longer stand for a run (lib/stale.lua) are not counted.
local Q = prefix .. 'q:' .. queue .. ':'
local reply = { whole(now_ms()) }
local heads, stale, STALE_MAX = {}, {}, 1000
if redis.call('HLEN', Q .. 'stale') <= STALE_MAX then -- else it is not worth the time
  local entries = redis.call('HGETALL', Q .. 'stale')
  for n = 1, #entries, 2 do
    local part = string.match(entries[n], '^(%S+) ')
    stale[part or ''] = (stale[part or ''] or 0) + tonumber(entries[n + 1])
  end
end

local function length(part)
  return math.max(0, redis.call('LLEN', Q .. part) - (stale[part] or 0))
end

for _, letter in ipairs({ 'a', 's' }) do
  for priority = 0, 2 do
    local list = 'ready:' .. letter .. ':' .. priority
    reply[#reply + 1] = length(list)
    local id = redis.call('LINDEX', Q .. list, 0)
    heads[#heads + 1] = id and redis.call('HGET', Q .. 'data', id) or ''
  end
end
reply[#reply + 1] = length('suspect:a')
reply[#reply + 1] = length('suspect:s')
reply[#reply + 1] = redis.call('HLEN', Q .. 'run')
reply[#reply + 1] = redis.call('ZCARD', Q .. 'later')
reply[#reply + 1] = redis.call('ZCARD', Q .. 'dead')
local head = redis.call('ZRANGE', Q .. 'later', 0, 0, 'WITHSCORES')
reply[#reply + 1] = head[2] or ''
reply[#reply + 1] = redis.call('EXISTS', Q .. 'paused')
reply[#reply + 1] = redis.call('GET', Q .. 'paused') or ''
for _, data in ipairs(heads) do
  reply[#reply + 1] = data
end
reply[#reply + 1] = redis.call('HLEN', Q .. 'blocked')
for _, item in ipairs(redis.call('HGETALL', Q .. 'stat')) do
  reply[#reply + 1] = item
end
return reply
