-- Shut a session off, before its runs are given back: from here on every turn of it is LOST.
--
-- KEYS  sessions       hash: session to beat counter
--       dying          set: sessions whose runs are being given back
-- ARGV  session        its name
--       counter        only if its beat counter still is this; empty: whatever it is, because its process is known
--                      to be dead
-- Includes  clock
--           room
--
-- Returns  1 it is dying, also when it was before
--          0 it beat since, or it is unknown
--
-- With an empty counter an unknown session is condemned too: the dead process may have sent an open that is
-- still on its way, and must not get through. A counter that is no number counts as 0, as for whoever watched it.
if redis.call('SISMEMBER', dying, session) == 1 then
  redis.call('HDEL', sessions, session)
  return 1
end
local beats = redis.call('HGET', sessions, session)
if counter ~= '' and (not beats or whole(natural(beats) or 0) ~= counter) then return 0 end
redis.call('SADD', dying, session)
redis.call('HDEL', sessions, session)
return 1
