-- Read what the scheduler decided, newest first. Writes nothing.
--
-- KEYS  log            stream: decisions, some lines in each entry
-- ARGV  count          at most so many
--       schedule       only of this one; empty: of all. Looks at the newest 10000 decisions
--
-- Returns  schedule, nominal, epoch, run (or -), code, missed, at in one line for each
local SCAN_MAX, PAGE = 10000, 500
local mine = schedule ~= '' and schedule .. ' '
local reply, left, scanned, before = {}, tonumber(count), 0, '+'
while left > 0 and (not mine or scanned < SCAN_MAX) do
  local entries = redis.call('XREVRANGE', log, before, '-', 'COUNT', math.min(PAGE, mine and PAGE or left))
  for _, entry in ipairs(entries) do
    local lines = {}
    for line in string.gmatch(entry[2][1] == 'r' and entry[2][2] or '', '[^\n]+') do
      lines[#lines + 1] = line
    end
    for n = #lines, 1, -1 do
      if left > 0 and (not mine or string.sub(lines[n], 1, #mine) == mine) then
        left = left - 1
        reply[#reply + 1] = lines[n]
      end
    end
    scanned = scanned + math.max(#lines, 1)
    before = '(' .. entry[1]
  end
  if #entries == 0 then break end
end
return reply
