-- Count the beats of the sessions on one replica. A session whose counter stands still is judged by others.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  ttl_ms         how long a session's description outlives this beat
--       sessions...    names
-- Includes  clock
--           room
--
-- Returns  those that are not open: reaped while this replica was away
if not_whole(ttl_ms) then return refuse('ttl_ms') end
local gone = {}
for i = FIRST, #ARGV do
  local session = ARGV[i]
  if redis.call('HEXISTS', keys.sessions, session) == 1 then
    raise(keys.sessions, session, 0)
    redis.call('PEXPIRE', keys.session(session), ttl_ms)
  else
    gone[#gone + 1] = session
  end
end
return gone
