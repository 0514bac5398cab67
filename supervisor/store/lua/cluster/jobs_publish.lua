-- Tell bare producers which jobs there are.
--
-- KEYS  jobs           hash: job name to JSON
--       seen           hash: job name to the time at which it was last published
-- ARGV  pairs...       name, JSON, name, JSON …
-- Includes  clock
--
-- Returns  how many names were new. Names that are not given stay: another version may run them.
if #ARGV == 0 or #ARGV % 2 ~= 0 then return refuse('pairs of name and JSON') end
local times, now = {}, whole(now_ms())
for i = FIRST, #ARGV, 2 do
  times[i], times[i + 1] = ARGV[i], now
end
redis.pcall('HSET', seen, unpack(times)) -- a foreign key there keeps no job from being told
return redis.call('HSET', jobs, unpack(ARGV))
