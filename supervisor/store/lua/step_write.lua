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
--
-- Includes  clock
--
-- Returns  1 noted; 0 refused: the run is no longer the caller's; -1 too many steps, or too large
if not_whole(5, 7) then
  return refuse('ttl_ms, steps_max and bytes_max must be whole numbers')
end
local token = redis.call('HGET', KEYS[2], ARGV[1])
if token ~= ARGV[2] then
  return 0
end
if redis.call('HGET', KEYS[1], '#born') ~= ARGV[3] then
  redis.call('DEL', KEYS[1])
end
local known = redis.call('HGET', KEYS[1], ARGV[4])
local size = (tonumber(redis.call('HGET', KEYS[1], '#bytes') or 0) or 0) + #ARGV[8] - (known and #known or 0)
local count = math.max(redis.call('HLEN', KEYS[1]) - 2, 0) + (known and 0 or 1)
if count > tonumber(ARGV[6]) or size > tonumber(ARGV[7]) then
  return -1
end
redis.call('HSET', KEYS[1], '#born', ARGV[3], '#bytes', whole(size), ARGV[4], ARGV[8])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1
