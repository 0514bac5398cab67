-- Ask for the lease.
--
-- KEYS  lease          hash: the current term
--       genesis        string: identity of this data set, written here once
--       events         stream: acquired, lapsed, data_loss and regression go in
--       fence          string: highest epoch ever granted, as far as any caller knows
--       candidates     hash: who could lead
-- ARGV  replica        identity of the caller
--       nonce          32 hex digits, new for each term the caller asks for; kept for its retries
--       duration_ms    how long the term lasts unless renewed
--       floor          highest epoch the caller has ever seen
--       mode           cold, expired, free, presence or register
--       epoch_seen     modes cold, expired and presence: the term that the caller watched
--       seq_seen       modes cold, expired and presence: its sequence number
--       host           of the caller, for people
--       pid            of the caller
--       version        of the caller
--       info           JSON of the candidate
--       genesis_seen   identity of the data set that the caller knew; empty: none
--       hold           the new leader must not fire until a person clears this reason, unless a later epoch than the floor was granted
--                      since; empty: it may
--       alive          prefix of the channels by which a holder shows that it lives; empty: not used
-- Includes  room
--           lease
--
-- Returns  code, then the lease as it now is
--          GRANTED  the caller holds a new term, with an epoch above every earlier one; the gap is since the last ended
--          SAME     the nonce is the caller's own: an earlier reply was lost. Renewed, so that trust may count from now
--          DENIED   nothing changed, except that the caller is a candidate, and the fence no lower than its floor
--
-- Granted when the record has no holder, or is absent and the caller watched none (else the data was lost, and whoever
-- held that term is to come first); when (epoch, seq) is what the caller watched for a whole duration
-- without a change (expired), or while the holder, which was visible at its last renewal, is not any more (presence);
-- when the server's time is past the record's end, and the caller, which just started, saw it unchanged for as long as
-- a renewal takes (cold: a step of the server's clock alone ends no term); or when the record is the caller's own, and
-- of an older term than it knows (the data went back) or not to be read. Never to register. A field that is no number
-- counts as 0, but for seq (UNREADABLE) and until, by which no term is over.
local MODES = { cold = true, expired = true, free = true, presence = true, register = true }
-- A seq that is no number, or gone, counts as this and the record's end, which each renewal moves: not as 0, which a
-- watcher may have seen before the latest renewals.
local UNREADABLE = 1e15
local FORGET_MS = 86400000 -- a candidate that was not seen for a day left without a word

if not string.match(nonce, '^%x+$') or #nonce ~= 32 then return refuse('nonce must be 32 hex digits') end
if not_whole(duration_ms, floor, epoch_seen, seq_seen) or tonumber(duration_ms) <= 0 then
  return refuse('duration, floor and what was observed must be whole numbers')
end
if not MODES[mode] then return refuse('mode ' .. mode) end

local now = now_ms()
local r = redis.call('HMGET', lease, 'epoch', 'nonce', 'holder', 'seq', 'until', 'transitions', 'released_at',
  'presence')
local epoch, holder = epoch_of(r[1]) or 0, r[3] or ''
local seq = natural(seq_text(r[4], r[1])) or UNREADABLE + (natural(r[5]) or 0)
local is_watched = whole(epoch) == epoch_seen and whole(seq) == seq_seen
local is_new = inform('HSET', candidates, replica, whole(now) .. ' ' .. info) == 1
if is_new and r[1] then
  raise(lease, 'roster', 0)
end

if r[2] == nonce and holder ~= '' and epoch > 0 then
  redis.call('HSET', lease, 'until', whole(now + tonumber(duration_ms)), 'duration', duration_ms, 'renewed', whole(now))
  raise(lease, 'seq', now)
  return world('SAME', now)
end

local reason = nil
if mode == 'register' then
  reason = nil
elseif holder == '' and r[1] then
  reason = 'free'
elseif holder == '' and mode ~= 'expired' and mode ~= 'presence' then
  reason = 'vacant'
elseif mode == 'expired' and is_watched then
  reason = 'expired'
elseif mode == 'presence' and is_watched and r[8] == '1' and presence_of(alive, r[1]) == 0 then
  reason = 'presence'
elseif mode == 'cold' and is_watched and (natural(r[5]) or math.huge) <= now then
  reason = 'cold'
elseif holder == replica and not is_readable(r[1], r[2]) then
  reason = 'unreadable'
elseif holder == replica and tonumber(floor) > epoch then
  reason = 'rolled_back'
end
if not reason then
  if tonumber(floor) > math.max(epoch, epoch_of(inform('GET', fence)) or 0) and epoch_of(floor) then
    redis.call('SET', fence, floor) -- the holder learns of it when it renews
  end
  return world('DENIED', now)
end

local remembered = math.max(epoch, epoch_of(redis.call('GET', fence)) or 0)
local highest = math.max(remembered, tonumber(floor))
local granted = whole(math.max(highest + 1, now))
local data_set = redis.call('GET', genesis) or ''
redis.call('SET', fence, granted)
redis.call('SETNX', genesis, nonce)
redis.call('HSET', lease, 'epoch', granted, 'nonce', nonce, 'holder', replica, 'seq', '0', 'duration', duration_ms,
  'until', whole(now + tonumber(duration_ms)), 'acquired', whole(now), 'renewed', whole(now), 'presence', '0',
  'transitions', whole((natural(r[6]) or 0) + 1), 'host', host, 'pid', pid, 'version', version)
if is_new and not r[1] then
  raise(lease, 'roster', 0)
end
if hold ~= '' and epoch <= tonumber(floor) then -- else another led since, and went through the loss
  redis.call('HSET', lease, 'hold', hold)
end

if holder ~= '' then
  event('lapsed', whole(epoch), holder, reason)
end
local is_lost = genesis_seen ~= '' and genesis_seen ~= data_set
if is_lost or highest > remembered then -- for those who start later: they saw nothing of it
  redis.call('HSET', lease, 'doubtful_until', whole(now))
end
if is_lost then
  event('data_loss', granted, replica, data_set == '' and 'emptied' or 'replaced')
elseif highest > remembered then
  event('regression', granted, replica, 'rolled_back')
end
event('acquired', granted, replica, reason)

local known = inform('HGETALL', candidates) or {}
for i = 1, #known, 2 do
  local seen = natural(string.match(known[i + 1], '^%d+'))
  if not seen or math.abs(now - seen) > FORGET_MS then
    redis.call('HDEL', candidates, known[i])
  end
end
local ended = natural(holder == '' and r[7] or r[5])
return world('GRANTED', now, -1, r[1] and ended and math.max(0, now - ended) or -1)
