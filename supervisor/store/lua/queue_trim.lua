-- Drop old history and old dead runs of a queue.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--       history        how many ended attempts stay
--       dead_cap       how many dead runs stay
--       dead_before_ms dead runs that died earlier go too; 0: none
--
-- Includes  clock
--           queue
--           limits
--
-- Returns  how many entries went; at most 500 dead runs in one call, so call again while it returns as many
local PAGE = 500
if not_whole(2, 4) then
  return refuse('history, dead_cap and dead_before_ms must be whole numbers')
end
local queue = ARGV[1]
local gone = math.max(redis.call('LLEN', q(queue, 'hist')) - tonumber(ARGV[2]), 0)
redis.call('LTRIM', q(queue, 'hist'), gone, -1)
local old = redis.call('ZRANGEBYSCORE', q(queue, 'dead'), '-inf', '(' .. ARGV[4], 'LIMIT', 0, PAGE)
local excess = redis.call('ZCARD', q(queue, 'dead')) - tonumber(ARGV[3])
if excess > #old then
  old = redis.call('ZRANGE', q(queue, 'dead'), 0, math.min(excess, PAGE) - 1)
end
if #old > 0 then
  redis.call('ZREM', q(queue, 'dead'), unpack(old))
  for _, part in ipairs({ 'data', 'att', 'err' }) do
    redis.call('HDEL', q(queue, part), unpack(old))
  end
end
return gone + #old
