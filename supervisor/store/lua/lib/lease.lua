-- Library: the lease record, and the reply that every election script gives, so that one round trip always
-- teaches the caller the world. KEYS[1] is the lease, KEYS[2] genesis, KEYS[3] events.
local EVENTS_MAX = 1000

local function event(kind, epoch, who, reason)
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', EVENTS_MAX, '*', 'kind', kind, 'epoch', epoch, 'who', who,
    'reason', reason)
end

local function world(code, now)
  local r = redis.call('HMGET', KEYS[1], 'epoch', 'nonce', 'holder', 'seq', 'until', 'duration', 'host', 'pid',
    'version', 'acquired', 'transitions')
  local last = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)
  return {
    code, r[1] or '0', r[2] or '', r[3] or '', r[4] or '0', whole((tonumber(r[5]) or 0) - now), r[6] or '0', whole(now),
    redis.call('GET', KEYS[2]) or '', last[1] and last[1][1] or '0-0', r[7] or '', r[8] or '', r[9] or '', r[10] or '0',
    r[11] or '0',
  }
end
