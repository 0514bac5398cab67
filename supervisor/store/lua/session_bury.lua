-- Forget a condemned session whose runs have been given back.
--
-- KEYS  dying          set: sessions whose runs are being given back
--       turns          hash: session to its last turn
--       session        hash: what the worker process was
-- ARGV  session        its name
--
-- Returns  1 if it was dying
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[3])
return redis.call('SREM', KEYS[1], ARGV[1])
