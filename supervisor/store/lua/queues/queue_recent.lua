-- Read the newest ended attempts of a queue. Writes nothing.
--
-- KEYS  hist           list: ended attempts, the newest at the right
-- ARGV  count          at most so many
-- Includes  clock
--
-- Returns  lines, newest first
if not_whole(count) or tonumber(count) < 1 then return refuse('count must be above 0') end
local lines, reply = redis.call('LRANGE', hist, '-' .. count, -1), {}
for n = #lines, 1, -1 do
  reply[#reply + 1] = string.sub(lines[n], 1, LINE_MAX)
end
return reply
