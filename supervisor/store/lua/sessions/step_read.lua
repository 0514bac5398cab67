-- Read the steps of a run that its earlier attempts left, and keep them from now on for another while.
--
-- KEYS  steps          hash, expires: name to JSON, and `#born`: which run of this id they belong to
-- ARGV  born           of the run that asks
--       ttl_ms         for how long the steps are kept after this
-- Includes  clock
--
-- Returns  name, JSON, name, JSON …: none if they are of an earlier run of the same id
if not_whole(ttl_ms) then return refuse('ttl_ms must be a whole number') end
if redis.call('HGET', steps, '#born') ~= born then return {} end
redis.call('PEXPIRE', steps, ttl_ms)
return redis.call('HGETALL', steps)
