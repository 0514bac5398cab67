-- Ask for the lease.
--
-- KEYS  lease          hash: the current term
--       genesis        string: identity of this data set, written here once
--       events         stream: acquired and lapsed go in
--       fence          string: highest epoch ever granted
--       candidates     hash: who could lead
-- ARGV  replica        identity of the caller
--       nonce          32 hex digits, new for each term the caller asks for; kept for its retries
--       duration_ms    how long the term lasts unless renewed
--       floor          highest epoch the caller has ever seen
--       mode           cold, expired or free
--       epoch_seen     mode expired: the term that the caller watched for a whole duration without a change
--       seq_seen       mode expired: its sequence number
--       host           of the caller, for people
--       pid            of the caller
--       version        of the caller
--       info           JSON of the candidate
--
-- Includes  clock
--           lease
--
-- Returns  code, then the lease as it now is
--          GRANTED  the caller holds a new term, with an epoch above every earlier one
--          SAME     the nonce is the caller's own: an earlier reply was lost. Renewed, so that trust may count from now
--          DENIED   nothing changed, except that the caller is a candidate
--
-- Granted when the record is absent or has no holder; when (epoch, seq) is what the caller watched (expired); or when
-- the server's time is past the record's end and the caller has no observation of its own (cold).
local replica, nonce, duration, floor, mode = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if not string.match(nonce, '^%x+$') or #nonce ~= 32 then
  return refuse('nonce must be 32 hex digits')
end
if not_whole(3, 4) or not_whole(6, 7) or tonumber(duration) <= 0 then
  return refuse('duration, floor and what was observed must be whole numbers')
end
if mode ~= 'cold' and mode ~= 'expired' and mode ~= 'free' then
  return refuse('mode ' .. mode)
end

local now = now_ms()
local r = redis.call('HMGET', KEYS[1], 'epoch', 'nonce', 'holder', 'seq', 'until', 'transitions')
local epoch, holder = tonumber(r[1]) or 0, r[3] or ''
redis.call('HSET', KEYS[5], replica, whole(now) .. ' ' .. ARGV[11])

if r[2] == nonce then
  redis.call('HSET', KEYS[1], 'until', whole(now + tonumber(duration)), 'duration', duration, 'renewed', whole(now))
  redis.call('HINCRBY', KEYS[1], 'seq', 1)
  return world('SAME', now)
end

local reason = nil
if holder == '' then
  reason = r[1] and 'free' or 'vacant'
elseif mode == 'expired' and r[1] == ARGV[6] and r[4] == ARGV[7] then
  reason = 'expired'
elseif mode == 'cold' and (tonumber(r[5]) or 0) <= now then
  reason = 'cold'
end
if not reason then
  return world('DENIED', now)
end

local highest = math.max(epoch, tonumber(redis.call('GET', KEYS[4]) or '0') or 0, tonumber(floor))
local granted = whole(math.max(highest + 1, now))
redis.call('SET', KEYS[4], granted)
redis.call('SETNX', KEYS[2], nonce)
redis.call('HSET', KEYS[1], 'epoch', granted, 'nonce', nonce, 'holder', replica, 'seq', '0', 'duration', duration,
  'until', whole(now + tonumber(duration)), 'acquired', whole(now), 'renewed', whole(now),
  'transitions', whole((tonumber(r[6]) or 0) + 1), 'host', ARGV[8], 'pid', ARGV[9], 'version', ARGV[10])
if holder ~= '' then
  event('lapsed', whole(epoch), holder, reason)
end
event('acquired', granted, replica, reason)
return world('GRANTED', now)
