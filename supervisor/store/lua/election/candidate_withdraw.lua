-- Take replicas off the list of those who could lead.
--
-- KEYS  lease          hash: the current term; counts the changes of that list
--       candidates     hash: who could lead
-- ARGV  replicas...    whose entries go, at most 100
-- Includes  clock
--
-- Returns  how many were there
local gone = redis.call('HDEL', candidates, unpack(ARGV))
if gone > 0 and redis.call('HEXISTS', lease, 'epoch') == 1 then
  raise(lease, 'roster', 0)
end
return gone
