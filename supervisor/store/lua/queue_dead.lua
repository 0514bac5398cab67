-- Read the runs of a queue that were given up, newest first. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--       count          at most so many
--
-- Includes  clock
--
-- Returns  id, died_ms, data, charges, error for each
if not_whole(2, 2) then
  return refuse('count must be a whole number')
end
local Q = KEYS[1] .. 'q:' .. ARGV[1] .. ':'
local reply = {}
local found = redis.call('ZREVRANGE', Q .. 'dead', 0, tonumber(ARGV[2]) - 1, 'WITHSCORES')
for i = 1, #found, 2 do
  local id, n = found[i], #reply
  reply[n + 1], reply[n + 2] = id, found[i + 1]
  reply[n + 3] = redis.call('HGET', Q .. 'data', id) or ''
  reply[n + 4] = redis.call('HGET', Q .. 'att', id) or ''
  reply[n + 5] = redis.call('HGET', Q .. 'err', id) or ''
end
return reply
