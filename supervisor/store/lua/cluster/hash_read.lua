-- Read a whole small hash: candidates, sessions, jobs. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  name           what follows the prefix in the name of the hash, of at most some hundreds of fields
--
-- Returns  field, value, field, value …
return redis.call('HGETALL', prefix .. name)
