-- Read a cached value, or be the one who computes it.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  name           of the function
--       key            of the call
--       nonce          of the caller
--       lease_ms       for how long nobody else computes it
--       ttl_ms         for how long the value is to be kept
-- Includes  clock
--
-- Returns  HIT, the value
--          MINE, the mark of this computation: the caller is to compute it
--          BUSY, empty: another one does, who may be dead: ask again, but not for ever
--
-- Those who compute after a lease that is over have one mark, so that the first result is kept, whoever brings it. No value
-- and no take is there of a call that is not on the list of its function, so whoever deletes by a pattern asks that alone.
local CALLS_MAX = 100000
local LATE_MS = 3600000 -- so long after its lease a result is taken still
local bad = not_whole(lease_ms, ttl_ms)
if bad then return refuse('lease_ms and ttl_ms must be whole numbers, got ' .. bad) end
local now, calls, take = now_ms(), keys.cache_calls(name), keys.cache_take(name, key)
local cached = redis.call('GET', keys.cache_value(name, key))
if cached then return { 'HIT', cached } end
local holder, busy_until, known = unpack(redis.call('HMGET', take, 'holder', 'until', 'mark'))
if holder and holder ~= nonce and (tonumber(busy_until) or 0) > now then return { 'BUSY', '' } end
local mark, kept_ms = known or nonce, lease_ms + LATE_MS + ttl_ms
redis.call('HSET', take, 'holder', nonce, 'until', whole(now + lease_ms), 'mark', mark)
redis.call('PEXPIRE', take, whole(lease_ms + LATE_MS))
redis.call('ZADD', calls, whole(now + kept_ms), key)
redis.call('PEXPIRE', calls, whole(math.max(kept_ms, redis.call('PTTL', calls))))
-- Of those whose time comes first two go for each one too many.
local first, is_full = redis.call('ZRANGE', calls, 0, 1, 'WITHSCORES'), redis.call('ZCARD', calls) > CALLS_MAX
for n = 1, #first, 2 do
  if is_full or tonumber(first[n + 1]) < now then
    redis.call('DEL', keys.cache_take(name, first[n]), keys.cache_value(name, first[n]))
    redis.call('ZREM', calls, first[n])
  end
end
return { 'MINE', mark }
