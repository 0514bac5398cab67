-- Drop old history and old dead runs of a queue.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--       history        how many ended attempts stay
--       dead_cap       how many dead runs stay
--       dead_before_ms dead runs that died earlier go too; 0: none
--       dead_age_ms    and those that died longer ago; 0: none
--       history_age_ms attempts that ended longer ago go too; 0: none
-- Includes  queue
--
-- Returns  how many entries went; at most 500 of each by their age in one call, so call again while it returns as many
local PAGE = 500
if not_whole(history, dead_cap, dead_before_ms, dead_age_ms, history_age_ms) then
  return refuse('history, dead_cap, dead_before_ms and ages must be whole numbers')
end
local gone = math.max(redis.call('LLEN', keys.hist(queue)) - tonumber(history), 0)
redis.call('LTRIM', keys.hist(queue), gone, -1)
if history_age_ms ~= '0' then
  local lines, old = redis.call('LRANGE', keys.hist(queue), 0, PAGE - 1), 0
  local before = now_ms() - tonumber(history_age_ms)
  for n, line in ipairs(lines) do
    local ended = tonumber(string.match(line, '^[^|]*|[^|]*|[^|]*|[^|]*|[^|]*|(%d+)') or 0)
    if ended >= before then break end
    old = n
  end
  redis.call('LTRIM', keys.hist(queue), old, -1)
  gone = gone + old
end
local before = tonumber(dead_before_ms)
if dead_age_ms ~= '0' then
  before = math.max(before, now_ms() - tonumber(dead_age_ms))
end
local old = redis.call('ZRANGEBYSCORE', keys.dead(queue), '-inf', '(' .. whole(before), 'LIMIT', 0, PAGE)
local excess = redis.call('ZCARD', keys.dead(queue)) - tonumber(dead_cap)
if excess > #old then
  old = redis.call('ZRANGE', keys.dead(queue), 0, math.min(excess, PAGE) - 1)
end
if #old > 0 then
  redis.call('ZREM', keys.dead(queue), unpack(old))
  erase(queue, unpack(old))
end
return gone + #old
