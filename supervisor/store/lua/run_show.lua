-- Find a run by its id. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  id             of the run
--       scan           how many of the newest ended attempts of each queue are searched
--       queues...      where to look; none: in all
--
-- Returns  state, queue, data, charges, token, due_ms, died_ms, error, result, lines of ended attempts …
--          State is running, later, dead, queued, finished or unknown.
local id, queues, reply, lines = ARGV[1], {}, nil, {}
for i = 3, #ARGV do
  queues[#queues + 1] = ARGV[i]
end
if #queues == 0 then
  queues = redis.call('SMEMBERS', KEYS[1] .. 'queues')
  table.sort(queues)
end
local result = redis.call('GET', KEYS[1] .. 'result:' .. id)

for _, queue in ipairs(queues) do
  local Q = KEYS[1] .. 'q:' .. queue .. ':'
  local token = redis.call('HGET', Q .. 'run', id)
  local data = redis.call('HGET', Q .. 'data', id)
  local due = redis.call('ZSCORE', Q .. 'later', id)
  local died = redis.call('ZSCORE', Q .. 'dead', id)
  if not reply and (token or data) then
    local state = token and 'running' or due and 'later' or died and 'dead' or 'queued'
    reply = { state, queue, data or '', redis.call('HGET', Q .. 'att', id) or '', token or '', due or '', died or '',
      redis.call('HGET', Q .. 'err', id) or '', result or '' }
  end
  for _, entry in ipairs(redis.call('XREVRANGE', Q .. 'hist', '+', '-', 'COUNT', ARGV[2])) do
    if string.sub(entry[2][2], 1, #id + 1) == id .. '|' then
      lines[#lines + 1] = entry[2][2]
      if not reply then
        reply = { 'finished', queue, '', '', '', '', '', '', result or '' }
      end
    end
  end
end
if not reply then
  reply = { result and 'finished' or 'unknown', '', '', '', '', '', '', '', result or '' }
end
for _, line in ipairs(lines) do
  reply[#reply + 1] = line
end
return reply
