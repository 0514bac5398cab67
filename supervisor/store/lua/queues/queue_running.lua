-- Read what runs from a queue. Changes nothing of ours.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--       cursor         0 at first, then the one of the previous page
-- Includes  clock
--
-- Returns  cursor (0 at the end), then id, token, data for each. One may come twice.
local page = redis.call('HSCAN', keys.run(queue), cursor, 'COUNT', 200)
page[2] = ours('HDEL', keys.run(queue), page[2], 2)
local reply = { page[1] }
for i = 1, #page[2], 2 do
  local n = #reply
  reply[n + 1], reply[n + 2] = page[2][i], page[2][i + 1]
  reply[n + 3] = readable(redis.call('HGET', keys.data(queue), page[2][i]) or '')
end
return reply
