-- Leave a command for one replica, whose agent looks for some about every second.
--
-- KEYS  prefix         of this cluster
-- ARGV  replica        its id
--       id             of the command; the same id again changes nothing
--       ttl_ms         how long it may wait to be taken
--       command        JSON
--
-- Includes  clock
--           room
--
-- Returns  SENT     also when it was sent before
--          FULL     as many wait as may; the replica does not take them
local WAITING_MAX = 100
if not_whole(3, 3) or ARGV[1] == '' or ARGV[2] == '' then
  return refuse('replica, id or ttl_ms')
end
local waiting, now = KEYS[1] .. 'commands:' .. ARGV[1], now_ms()
if redis.call('HEXISTS', waiting, ARGV[2]) == 1 or redis.call('EXISTS', KEYS[1] .. 'command:' .. ARGV[2]) == 1 then
  return 'SENT'
end
if redis.call('HLEN', waiting) >= WAITING_MAX then
  return 'FULL'
end
redis.call('HSET', waiting, ARGV[2], whole(now) .. ' ' .. whole(now + tonumber(ARGV[3])) .. ' ' .. ARGV[4])
redis.call('PEXPIRE', waiting, ARGV[3])
return 'SENT'
