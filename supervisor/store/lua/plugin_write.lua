-- Keep what is known of one plugin; of too many, the one that was written longest ago is forgotten.
--
-- KEYS  plugins        hash: plugin and digest of its options to at_ms, a space, and JSON; expires
-- ARGV  field          which
--       json           what is known
--       most           how many there may be
--       ttl_ms         how long all of it is kept after the last write
--
-- Includes  clock
--
-- Returns  1 kept beside or over the others
--          0 kept, and another one was forgotten for it
if not string.match(ARGV[3], '^[1-9]%d*$') or not string.match(ARGV[4], '^[1-9]%d*$') then
  return refuse('most or ttl_ms')
end
local forgotten = 0
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  local all, oldest, at = redis.call('HGETALL', KEYS[1]), nil, nil
  for i = 1, #all, 2 do
    local written = tonumber(string.match(all[i + 1], '^(%d+) ') or '0')
    if at == nil or written < at then
      oldest, at = all[i], written
    end
  end
  redis.call('HDEL', KEYS[1], oldest)
  forgotten = 1
end
redis.call('HSET', KEYS[1], ARGV[1], whole(now_ms()) .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1 - forgotten
