-- Keep what is known of one plugin; of too many, the one that was written longest ago is forgotten.
--
-- KEYS  plugins        hash: plugin and digest of its options to at_ms, a space, and JSON; expires
-- ARGV  field          which
--       json           what is known
--       most           how many there may be
--       ttl_ms         how long all of it is kept after the last write
-- Includes  clock
--
-- Returns  1 kept beside or over the others
--          0 kept, and another one was forgotten for it
if not string.match(most, '^[1-9]%d*$') or not string.match(ttl_ms, '^[1-9]%d*$') then
  return refuse('most or ttl_ms')
end
local forgotten = 0
if redis.call('HEXISTS', plugins, field) == 0 and redis.call('HLEN', plugins) >= tonumber(most) then
  local all, oldest, at = redis.call('HGETALL', plugins), nil, nil
  for i = 1, #all, 2 do
    local written = tonumber(string.match(all[i + 1], '^(%d+) ') or '0')
    if at == nil or written < at then
      oldest, at = all[i], written
    end
  end
  redis.call('HDEL', plugins, oldest)
  forgotten = 1
end
redis.call('HSET', plugins, field, whole(now_ms()) .. ' ' .. json)
redis.call('PEXPIRE', plugins, ttl_ms)
return 1 - forgotten
