-- Read the commands that wait for one replica; they stay until they are answered, so that a lost reply costs nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  replica        its id
-- Includes  clock
--
-- Returns  id, command: for each, oldest first; one that waited too long is dropped unseen, and so is one whose id no answer
--          could name
local waiting = keys.commands(replica)
if redis.call('EXISTS', waiting) == 0 then return {} end
local now, found, entries = now_ms(), {}, redis.call('HGETALL', waiting)
for i = 1, #entries, 2 do
  local sent, until_ms, command = string.match(entries[i + 1], '^(%d+) (%d+) (.*)$')
  if not sent or tonumber(until_ms) < now or not string.find(entries[i], '^[!-~]+$') then
    redis.call('HDEL', waiting, entries[i])
  else
    found[#found + 1] = { tonumber(sent), entries[i], command }
  end
end
table.sort(found, function(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  return a[2] < b[2]
end)
local reply = {}
for _, each in ipairs(found) do
  reply[#reply + 1], reply[#reply + 2] = each[2], each[3]
end
return reply
