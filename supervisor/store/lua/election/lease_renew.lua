-- Extend the lease if, and only if, the caller still holds this very term.
--
-- KEYS  lease          hash: the current term
--       genesis        string: identity of this data set
--       events         stream: reclaimed goes in
--       candidates     hash: the holder's own entry is written anew
--       fence          string: highest epoch ever granted, as far as any caller knows
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       duration_ms    how long the term lasts from now
--       hold           the caller must not fire until a person clears this reason; empty: nothing new to hold for
--       alive          prefix of the channels by which the caller shows that it lives; empty: it does not now
--       replica        identity of the caller; empty: as the record says
--       info           JSON of the caller as a candidate, as it is now: a reload may have changed it. Empty: as it was
-- Includes  room
--           lease
--
-- Returns  code, then the lease as it now is
--          RENEWED    the term goes on
--          RECLAIMED  the term had run out, nobody took it, and it goes on
--          OUTDATED   it goes on as well, but the data went back: another acted with a later epoch, of which they know nothing
--          MISSING    there is no lease at all: the data set was emptied
--          LOST       another term was granted, or this one was released
--
-- Never creates a lease and never touches another holder's. Whether the holder was visible at this moment goes into the
-- record: where a proxy hides subscribers, nobody may conclude anything from their absence.
if not_whole(epoch, duration_ms) or nonce == '' then
  return refuse('epoch and duration must be whole numbers and nonce not empty')
end
local now = now_ms()
local r = redis.call('HMGET', lease, 'epoch', 'nonce', 'holder', 'until')
local replica = replica ~= '' and replica or r[3] or ''
if not r[1] then return world('MISSING', now) end
if r[1] ~= epoch or r[2] ~= nonce then return world('LOST', now) end

local lapsed = (natural(r[4]) or 0) < now
local presence = presence_of(alive, r[1])
redis.call('HSET', lease, 'holder', replica, 'until', whole(now + tonumber(duration_ms)), 'duration', duration_ms,
  'renewed', whole(now), 'presence', presence > 0 and '1' or '0')
raise(lease, 'seq', now)
if hold ~= '' then
  redis.call('HSET', lease, 'hold', hold)
end
local known = inform('HGET', candidates, replica)
local info = info ~= '' and info or known and string.gsub(known, '^%d+ ', '', 1)
if info and inform('HSET', candidates, replica, whole(now) .. ' ' .. info) == 1 then
  raise(lease, 'roster', 0)
end
if lapsed then
  event('reclaimed', r[1], replica, 'renewed')
end
local is_outdated = (epoch_of(inform('GET', fence)) or 0) > tonumber(epoch)
return world(is_outdated and 'OUTDATED' or lapsed and 'RECLAIMED' or 'RENEWED', now, presence)
