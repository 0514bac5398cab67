-- Read which runs of a queue wait for a concurrency key. Changes nothing of ours.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--       cursor         0 at first, then the one of the previous page
-- Includes  clock
--
-- Returns  cursor (0 at the end), then id, key, data for each. One may come twice.
local page = redis.call('HSCAN', keys.blocked(queue), cursor, 'COUNT', 200)
page[2] = ours('HDEL', keys.blocked(queue), page[2], 2)
local reply = { page[1] }
for i = 1, #page[2], 2 do
  local n = #reply
  reply[n + 1], reply[n + 2] = page[2][i], page[2][i + 1]
  reply[n + 3] = readable(redis.call('HGET', keys.data(queue), page[2][i]) or '')
end
return reply
