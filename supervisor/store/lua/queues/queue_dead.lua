-- Read the runs of a queue that were given up. Changes nothing of ours.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--       count          at most so many in a page, 1 to 10000
--       order          newest: in that order; any: each run that is dead from the first page to the last comes
--       position       0 at first, then the one of the previous page
-- Includes  clock
--
-- Returns  next position (0 at the end), then id, died_ms, data, charges, error for each. One may come twice.
if not_whole(count) or tonumber(count) < 1 or tonumber(count) > 10000 or not_whole(position) then
  return refuse('a count of 1 to 10000, and a position')
end
local count = tonumber(count)
local following, found = '0', {}
if order == 'newest' then
  local first = tonumber(position)
  found = redis.call('ZREVRANGE', keys.dead(queue), first, first + count - 1, 'WITHSCORES')
  following = #found < 2 * count and '0' or whole(first + count)
else
  local page = redis.call('ZSCAN', keys.dead(queue), position, 'COUNT', count)
  following, found = page[1], page[2]
end
local dead = ours('ZREM', keys.dead(queue), found, 2)
local reply = { following }
for i = 1, #dead, 2 do
  local id, n = dead[i], #reply
  reply[n + 1], reply[n + 2] = id, dead[i + 1]
  reply[n + 3] = readable(redis.call('HGET', keys.data(queue), id) or '')
  reply[n + 4] = readable(redis.call('HGET', keys.att(queue), id) or '')
  reply[n + 5] = readable(redis.call('HGET', keys.err(queue), id) or '')
end
return reply
