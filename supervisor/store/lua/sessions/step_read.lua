-- Read the steps of a run that its earlier attempts left. Writes nothing.
--
-- KEYS  steps          hash, expires: name to JSON, and `#born`: which run of this id they belong to
-- ARGV  born           of the run that asks
--
-- Returns  name, JSON, name, JSON …: none if they are of an earlier run of the same id
if redis.call('HGET', steps, '#born') ~= born then return {} end
return redis.call('HGETALL', steps)
