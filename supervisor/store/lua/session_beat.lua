-- Count the beats of the sessions on one replica. A session whose counter stands still is judged by others.
--
-- KEYS  prefix         of this cluster
-- ARGV  ttl_ms         how long a session's description outlives this beat
--       sessions...    names
--
-- Includes  clock
--           room
--
-- Returns  those that are not open: reaped while this replica was away
if not_whole(1, 1) then
  return refuse('ttl_ms')
end
local gone = {}
for i = 2, #ARGV do
  local session = ARGV[i]
  if redis.call('HEXISTS', KEYS[1] .. 'sessions', session) == 1 then
    redis.call('HINCRBY', KEYS[1] .. 'sessions', session, 1)
    redis.call('PEXPIRE', KEYS[1] .. 'session:' .. session, ARGV[1])
  else
    gone[#gone + 1] = session
  end
end
return gone
