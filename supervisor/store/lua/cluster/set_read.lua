-- Read a whole small set: queue names, dying sessions. Names that are longer than any of ours are taken out.
--
-- KEYS  set            at most some hundreds of members
-- Includes  clock
--
-- Returns  the members
return ours('SREM', set, redis.call('SMEMBERS', set))
