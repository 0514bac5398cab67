-- Read a whole small hash: candidates, sessions, jobs. Writes nothing.
--
-- KEYS  hash           at most some hundreds of fields
--
-- Returns  field, value, field, value …
return redis.call('HGETALL', KEYS[1])
