-- Queues that open sessions take runs from. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it

-- Pairs of queue and kind (a or s), each once, and the same as a set of '<queue> <kind>'.
local function served_pairs()
  local letters, pairs_found, is_served = { async = 'a', sync = 's' }, {}, {}
  local sessions = redis.pcall('HKEYS', keys.sessions)
  for _, session in ipairs(sessions['err'] and {} or sessions) do
    local info = redis.pcall('HMGET', keys.session(session), 'kind', 'queues')
    local letter = not info['err'] and letters[info[1] or '']
    for name in string.gmatch(letter and info[2] or '', '[^,]+') do
      if not is_served[name .. ' ' .. letter] then
        is_served[name .. ' ' .. letter] = true
        local n = #pairs_found
        pairs_found[n + 1], pairs_found[n + 2] = name, letter
      end
    end
  end
  return pairs_found, is_served
end
