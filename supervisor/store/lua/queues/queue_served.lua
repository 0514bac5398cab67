-- Look whether an open session takes runs from a queue. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--
-- Returns  1 if one does, else 0; -1 if no replica of this cluster was ever seen
local sessions = redis.pcall('HKEYS', keys.sessions)
for _, session in ipairs(sessions['err'] and {} or sessions) do
  local queues = redis.pcall('HGET', keys.session(session), 'queues')
  if type(queues) == 'string' and string.find(',' .. queues .. ',', ',' .. queue .. ',', 1, true) then return 1 end
end
return redis.call('EXISTS', keys.fence, keys.lease, keys.candidates, keys.sessions) > 0 and 0 or -1
