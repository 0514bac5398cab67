-- Leave a command for one replica, whose agent looks for some about every second.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  replica        its id
--       id             of the command; the same id again changes nothing
--       ttl_ms         how long it may wait to be taken
--       command        JSON
-- Includes  clock
--           room
--
-- Returns  SENT     also when it was sent before
--          FULL     as many wait as may; the replica does not take them
local WAITING_MAX = 100
if not_whole(ttl_ms) or replica == '' or id == '' then return refuse('replica, id or ttl_ms') end
local waiting, now = keys.commands(replica), now_ms()
if redis.call('HEXISTS', waiting, id) == 1 or redis.call('EXISTS', keys.command(id)) == 1 then return 'SENT' end
if redis.call('HLEN', waiting) >= WAITING_MAX then return 'FULL' end
redis.call('HSET', waiting, id, whole(now) .. ' ' .. whole(now + tonumber(ttl_ms)) .. ' ' .. command)
redis.call('PEXPIRE', waiting, ttl_ms)
return 'SENT'
