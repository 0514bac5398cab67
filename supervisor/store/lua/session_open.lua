-- Let a worker process take runs.
--
-- KEYS  sessions       hash: session to beat counter
--       dying          set: sessions whose runs are being given back
--       session        hash: what the worker process is
-- ARGV  session        its name
--       ttl_ms         how long its description outlives its last beat
--       info...        field, value, field, value …
--
-- Includes  clock
--           room
--
-- Returns  1 open, also when it was open before
--          0 it is dying: its owner is known to be dead, and this call is late
if #ARGV % 2 ~= 0 or not_whole(2, 2) then
  return refuse('pairs of field and value')
end
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then
  return 0
end
redis.call('HSETNX', KEYS[1], ARGV[1], '0')
if #ARGV > 2 then
  redis.call('HSET', KEYS[3], unpack(ARGV, 3))
  redis.call('PEXPIRE', KEYS[3], ARGV[2])
end
return 1
