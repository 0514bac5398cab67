-- Keep what jobs say of their runs. Never stops anything: a key of another type is replaced.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  items...       id, fence, ttl_ms, JSON, once for each run
-- Includes  clock
--
-- Returns  how many were written: one whose fence is smaller than that of what is there is left out, because it comes from
--          an execution that was taken for dead
local FIELDS = 4
if #ARGV == 0 or #ARGV % FIELDS ~= 0 then return refuse('items of id, fence, ttl_ms, JSON') end
for i = FIRST, #ARGV, FIELDS do
  if not string.match(ARGV[i + 1], '^%d+$') or not string.match(ARGV[i + 2], '^[1-9]%d*$') then
    return refuse('fence or ttl_ms of ' .. ARGV[i])
  end
end
local written = 0
for i = FIRST, #ARGV, FIELDS do
  local key = keys.progress(ARGV[i])
  local known = redis.pcall('GET', key)
  local fence = type(known) == 'string' and string.match(known, '^(%d+) ') or '0'
  if tonumber(fence) <= tonumber(ARGV[i + 1]) then
    redis.call('SET', key, ARGV[i + 1] .. ' ' .. ARGV[i + 3], 'PX', ARGV[i + 2])
    written = written + 1
  end
end
return written
