-- Write watermarks where there are none: what the leader remembers of what it decided, after Redis lost its data.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       items...       schedule, mark_ms: once for each
--
-- Includes  clock
--           term
--
-- Returns  how many were written
--          error FENCED <epoch>: the term is not the current one; nothing written
--
-- One that is there is never touched: after a partial roll-back the server's decides.
local refused = fence(KEYS[1] .. 'lease', ARGV[1], ARGV[2])
if refused then
  return refused
end
if #ARGV < 4 or #ARGV % 2 ~= 0 then
  return refuse('items of 2 fields')
end
for i = 3, #ARGV, 2 do
  if not string.match(ARGV[i + 1], '^%d+$') then
    return refuse('watermark of ' .. ARGV[i])
  end
end
local written = 0
for i = 3, #ARGV, 2 do
  written = written + redis.call('HSETNX', KEYS[1] .. 'schedule:mark', ARGV[i], ARGV[i + 1])
end
return written
