-- Note how a step of a run ended, if the caller is the one who executes the run.
--
-- KEYS  steps          hash, expires: name to JSON, and `#born`: which run of this id they belong to
--       run            hash: run to `session|attempt|fetched_ms`
-- ARGV  id             of the run
--       fence          of the caller's execution, as `run` has it
--       born           tells this run from an earlier one of the same id
--       name           of the step
--       ttl_ms         for how long the steps are kept after this
--       steps_max      how many there may be
--       bytes_max      how large they may be together
--       step           JSON
-- Includes  clock
--           room
--
-- Memory that is full does not refuse it: the step was called already, and would be called again.
--
-- Returns  1 noted; 0 refused: the run is no longer the caller's; -1 too many steps, or too large
if not_whole(ttl_ms, steps_max, bytes_max) then
  return refuse('ttl_ms, steps_max and bytes_max must be whole numbers')
end
local token = redis.call('HGET', run, id)
if token ~= fence then return 0 end
if redis.call('HGET', steps, '#born') ~= born then
  redis.call('DEL', steps)
end
local known = redis.call('HGET', steps, name)
local size = (tonumber(redis.call('HGET', steps, '#bytes') or 0) or 0) + #step - (known and #known or 0)
local count = math.max(redis.call('HLEN', steps) - 2, 0) + (known and 0 or 1)
if count > tonumber(steps_max) or size > tonumber(bytes_max) then return -1 end
redis.call('HSET', steps, '#born', born, '#bytes', whole(size), name, step)
redis.call('PEXPIRE', steps, ttl_ms)
return 1
