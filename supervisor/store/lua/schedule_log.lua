-- Read what the scheduler decided, newest first. Writes nothing.
--
-- KEYS  log            stream: decisions, each one line
-- ARGV  count          at most so many
--       schedule       only of this one; empty: of all. Looks at the newest 10000 decisions
--
-- Returns  schedule, nominal, epoch, run (or -), code, missed, at in one line for each
local SCAN_MAX = 10000
local scan = ARGV[2] == '' and ARGV[1] or SCAN_MAX
local reply, left, mine = {}, tonumber(ARGV[1]), ARGV[2] .. ' '
for _, entry in ipairs(redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', scan)) do
  local line = entry[2][2] or ''
  if left > 0 and entry[2][1] == 'r' and (ARGV[2] == '' or string.sub(line, 1, #mine) == mine) then
    left = left - 1
    reply[#reply + 1] = line
  end
end
return reply
