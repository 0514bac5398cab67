-- End a session that holds nothing: its worker gave back or acknowledged all it had.
--
-- KEYS  sessions       hash: session to beat counter
--       turns          hash: session to its last turn
--       description    hash: what the worker process is
-- ARGV  session        its name
--
-- Returns  1 if it was open
redis.call('HDEL', turns, session)
redis.call('DEL', description)
return redis.call('HDEL', sessions, session)
