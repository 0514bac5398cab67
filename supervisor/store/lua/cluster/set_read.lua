-- Read a whole small set: queue names, dying sessions. Writes nothing.
--
-- KEYS  set            at most some hundreds of members
--
-- Returns  the members
return redis.call('SMEMBERS', set)
