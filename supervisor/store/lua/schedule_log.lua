-- Read what the scheduler decided, newest first. Writes nothing.
--
-- KEYS  log            stream: decisions
-- ARGV  count          at most so many
--       schedule       only of this one; empty: of all. Looks at the newest 10000 decisions
--
-- Returns  schedule, nominal, epoch, run, code, missed, at for each
local FIELDS = { 'schedule', 'nominal', 'epoch', 'run', 'code', 'missed', 'at' }
local SCAN_MAX = 10000
local scan = ARGV[2] == '' and ARGV[1] or SCAN_MAX
local reply, left = {}, tonumber(ARGV[1])
for _, entry in ipairs(redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', scan)) do
  local fields = {}
  for i = 1, #entry[2], 2 do
    fields[entry[2][i]] = entry[2][i + 1]
  end
  if left > 0 and (ARGV[2] == '' or fields['schedule'] == ARGV[2]) then
    left = left - 1
    for _, name in ipairs(FIELDS) do
      reply[#reply + 1] = fields[name] or ''
    end
  end
end
return reply
