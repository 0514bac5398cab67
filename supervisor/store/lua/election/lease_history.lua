-- Read what happened to the lease, newest first. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  count          at most so many
--       events         what follows the prefix in the name of a stream: what happened
-- Includes  clock
--
-- Returns  id, kind, epoch, who, reason for each
local FIELDS = { 'kind', 'epoch', 'who', 'reason' }
if not_whole(count) or tonumber(count) < 1 then return refuse('count must be a whole number above 0') end
local reply = {}
for _, entry in ipairs(redis.call('XREVRANGE', prefix .. events, '+', '-', 'COUNT', count)) do
  local fields = {}
  for i = 1, #entry[2], 2 do
    fields[entry[2][i]] = entry[2][i + 1]
  end
  reply[#reply + 1] = entry[1]
  for _, name in ipairs(FIELDS) do
    reply[#reply + 1] = fields[name] or ''
  end
end
return reply
