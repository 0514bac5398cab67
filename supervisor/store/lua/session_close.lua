-- End a session that holds nothing: its worker gave back or acknowledged all it had.
--
-- KEYS  sessions       hash: session to beat counter
--       turns          hash: session to its last turn
--       session        hash: what the worker process is
-- ARGV  session        its name
--
-- Returns  1 if it was open
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[3])
return redis.call('HDEL', KEYS[1], ARGV[1])
