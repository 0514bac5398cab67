-- Read the newest ended attempts of a queue. Writes nothing.
--
-- KEYS  hist           stream: ended attempts
-- ARGV  count          at most so many
--
-- Returns  lines, newest first
local reply = {}
for _, entry in ipairs(redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', ARGV[1])) do
  reply[#reply + 1] = entry[2][2]
end
return reply
