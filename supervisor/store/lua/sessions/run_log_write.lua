-- Keep the output of attempts that go on, of those that the caller still executes.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  items...       queue, id, fence (`session|attempt|fetched_ms`), born, number of the execution, JSON; once for each
-- Includes  clock
--           run_logs
--
-- Returns  how many were kept: one whose run is no longer the caller's, or in a queue with a key of another type, is left out
local FIELDS = 6
if #ARGV == 0 or #ARGV % FIELDS ~= 0 then return refuse('items of queue, id, fence, born, number, JSON') end
for i = FIRST, #ARGV, FIELDS do
  if not_whole(ARGV[i + 3], ARGV[i + 4]) or ARGV[i + 5] == '' then
    return refuse('born, number or JSON of ' .. ARGV[i + 1])
  end
end
local written = 0
for i = FIRST, #ARGV, FIELDS do
  if redis.pcall('HGET', keys.run(ARGV[i]), ARGV[i + 1]) == ARGV[i + 2] then
    log_write(ARGV[i + 1], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], now_ms())
    written = written + 1
  end
end
return written
