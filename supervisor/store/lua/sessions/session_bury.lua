-- Forget a condemned session whose runs have been given back.
--
-- KEYS  dying          set: sessions whose runs are being given back
--       turns          hash: session to its last turn
--       description    hash: what the worker process was
-- ARGV  session        its name
--
-- Returns  1 if it was dying
redis.call('HDEL', turns, session)
redis.call('DEL', description)
return redis.call('SREM', dying, session)
