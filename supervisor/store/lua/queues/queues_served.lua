-- Find the queues that open sessions take runs from. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
--
-- Returns  queue and kind (a or s) of the runs taken there, each pair once
local LETTERS, is_told, reply = { async = 'a', sync = 's' }, {}, {}
local sessions = redis.pcall('HKEYS', keys.sessions)
for _, session in ipairs(sessions['err'] and {} or sessions) do
  local info = redis.pcall('HMGET', keys.session(session), 'kind', 'queues')
  local letter = not info['err'] and LETTERS[info[1] or '']
  for name in string.gmatch(letter and info[2] or '', '[^,]+') do
    if not is_told[name .. ' ' .. letter] then
      is_told[name .. ' ' .. letter] = true
      local n = #reply
      reply[n + 1], reply[n + 2] = name, letter
    end
  end
end
return reply
