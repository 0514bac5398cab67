-- Read definitions. Writes nothing.
--
-- KEYS  definitions    hash: schedule to revision, timing digest, set digest and definition
-- ARGV  ids...         schedules
--
-- Returns  what is stored for each, nil where there is nothing
return redis.call('HMGET', definitions, unpack(ARGV))
