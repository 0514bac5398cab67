-- Library: the lease record, and the reply that every election script gives, so that one round trip always
-- teaches the caller the world.
--
-- KEYS  lease
--       genesis
--       events
-- Includes  clock
local EVENTS_MAX = 1000
local EPOCH_MAX = 1e14 -- no clock in ms comes near it: nothing is counted on from a number above

local function epoch_of(text)
  local n = natural(text)
  return n and n > 0 and n < EPOCH_MAX and n or nil
end

-- Whether a holder can renew the term of this epoch and nonce: no reply repeats what is none of ours.
local function is_readable(epoch, nonce)
  return epoch_of(epoch) ~= nil and #(nonce or '') == 32 and string.match(nonce, '^[0-9a-f]+$') ~= nil
    and string.find(nonce, '[^0]') ~= nil
end

-- What follows the reason are more names and values of the entry.
local function event(kind, epoch, who, reason, ...)
  inform('XADD', events, 'MAXLEN', '~', EVENTS_MAX, '*', 'kind', kind, 'epoch', epoch, 'who', who,
    'reason', reason, ...)
end

-- How many connections show that the holder of a term lives; -1 where the server does not say.
local function presence_of(prefix, epoch)
  if prefix == '' then return -1 end
  local reply = redis.pcall('PUBSUB', 'NUMSUB', prefix .. epoch)
  return type(reply) == 'table' and not reply['err'] and tonumber(reply[2]) or -1
end

-- The sequence number as it is written; 0 without a record, and nothing where a record has lost it.
local function seq_text(seq, epoch)
  return seq or (epoch and '' or '0')
end

-- presence and gap are answered as given; -1, the default, is: not known. No last event: the stream is none of ours.
local function world(code, now, presence, gap)
  local r = redis.call('HMGET', lease, 'epoch', 'nonce', 'holder', 'seq', 'until', 'duration', 'host', 'pid',
    'version', 'acquired', 'transitions', 'hold', 'resign_epoch', 'resign_to', 'resign_by', 'roster',
    'doubtful_until')
  local last = inform('XREVRANGE', events, '+', '-', 'COUNT', 1)
  local is_asked = r[13] and r[13] == r[1] and (r[3] or '') ~= ''
  return {
    code, r[1] or '0', r[2] or '', r[3] or '', seq_text(r[4], r[1]), whole((natural(r[5]) or 0) - now), r[6] or '0', whole(now),
    redis.call('GET', genesis) or '', last and (last[1] and last[1][1] or '0-0') or '', r[7] or '', r[8] or '', r[9] or '', r[10] or '0',
    r[11] or '0', r[12] or '', is_asked and '1' or '0', is_asked and r[14] or '', is_asked and r[15] or '',
    r[16] or '0', whole(presence or -1), whole(gap or -1), r[17] or '0',
  }
end
