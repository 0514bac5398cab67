-- Give the holder a later epoch of its own: its scheduler died, and what that one sent late must be refused.
--
-- KEYS  lease          hash: the current term
--       genesis        string: identity of this data set
--       events         stream: acquired and regression go in
--       fence          string: highest epoch ever granted
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       new_nonce      32 hex digits, drawn for this promotion and kept for its retries
--       duration_ms    how long the new term lasts unless renewed
--       rolled_back    1: the data went back within the caller's term; what was due until now is noted as doubtful. Else 0
-- Includes  room
--           lease
--
-- Returns  code, then the lease as it now is
--          GRANTED  the caller holds a new term
--          SAME     it was promoted to this nonce before: an earlier reply was lost. Renewed: trust counts from now
--          MISSING  there is no lease at all: the data set was emptied
--          LOST     another term was granted, this one was released, or nobody can read its epoch
--
-- The caller asks only after its parent reaped the scheduler, or after a roll-back. The holder stays, so this is no transition.
if not_whole(epoch, duration_ms) or nonce == '' or tonumber(duration_ms) <= 0 then
  return refuse('epoch and duration must be whole numbers and nonce not empty')
end
if not string.match(new_nonce, '^%x+$') or #new_nonce ~= 32 or new_nonce == nonce then
  return refuse('new_nonce must be 32 hex digits, and another than nonce')
end
local now = now_ms()
local r = redis.call('HMGET', lease, 'epoch', 'nonce', 'holder')
if not r[1] then return world('MISSING', now) end
if r[2] == new_nonce and epoch_of(r[1]) then
  redis.call('HSET', lease, 'until', whole(now + tonumber(duration_ms)), 'duration', duration_ms, 'renewed', whole(now))
  raise(lease, 'seq', now)
  return world('SAME', now)
end
if r[1] ~= epoch or r[2] ~= nonce then return world('LOST', now) end

local highest = math.max(tonumber(r[1]), epoch_of(redis.call('GET', fence)) or 0)
local granted = whole(math.max(highest + 1, now))
redis.call('SET', fence, granted)
redis.call('HSET', lease, 'epoch', granted, 'nonce', new_nonce, 'seq', '0', 'duration', duration_ms,
  'until', whole(now + tonumber(duration_ms)), 'renewed', whole(now), 'presence', '0')
if rolled_back == '1' then -- for those who start later: they saw nothing of it
  redis.call('HSET', lease, 'doubtful_until', whole(now))
  event('regression', granted, r[3], 'rolled_back')
end
event('acquired', granted, r[3], 'promoted')
return world('GRANTED', now)
