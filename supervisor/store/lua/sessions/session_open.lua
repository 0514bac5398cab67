-- Let a worker process take runs.
--
-- KEYS  sessions       hash: session to beat counter
--       dying          set: sessions whose runs are being given back
--       description    hash: what the worker process is
-- ARGV  session        its name
--       ttl_ms         how long its description outlives its last beat
--       info...        field, value, field, value …
-- Includes  clock
--           room
--
-- Returns  1 open, also when it was open before
--          0 it is dying: its owner is known to be dead, and this call is late
if #ARGV % 2 ~= 0 or not_whole(ttl_ms) then return refuse('pairs of field and value') end
if redis.call('SISMEMBER', dying, session) == 1 then return 0 end
redis.call('HSETNX', sessions, session, '0')
if #ARGV >= FIRST then
  redis.call('HSET', description, unpack(ARGV, FIRST))
  redis.call('PEXPIRE', description, ttl_ms)
end
return 1
