-- Read how a queue stands. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--
-- Includes  clock
--
-- Returns  now_ms, six ready counts (async high, normal, low, then sync), two suspect counts (async, sync), running,
--          later, dead, next_due_ms or empty, reason of the pause or nil, heads of the six ready lists (data or nil),
--          then the counters as name, value …
local Q = KEYS[1] .. 'q:' .. ARGV[1] .. ':'
local reply = { whole(now_ms()) }
local heads = {}
for _, letter in ipairs({ 'a', 's' }) do
  for priority = 0, 2 do
    local list = Q .. 'ready:' .. letter .. ':' .. priority
    reply[#reply + 1] = redis.call('LLEN', list)
    local id = redis.call('LINDEX', list, 0)
    heads[#heads + 1] = id and redis.call('HGET', Q .. 'data', id) or ''
  end
end
reply[#reply + 1] = redis.call('LLEN', Q .. 'suspect:a')
reply[#reply + 1] = redis.call('LLEN', Q .. 'suspect:s')
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
for _, item in ipairs(redis.call('HGETALL', Q .. 'stat')) do
  reply[#reply + 1] = item
end
return reply
