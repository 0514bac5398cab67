-- Stop the scheduled and buffered starts of schedules, static or dynamic. Running jobs, triggers and backfills go on.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  reason         for people
--       by             who asks
--       until_ms       when it ends by itself; empty: never
--       for_ms         or: how long from this server's now; empty: see until_ms
--       nonce          of this call: sent again, it gets the same reply for ten minutes and moves no end
--       revision       of the definition that the request was judged by; empty: any
--       ids...         at most 250
-- Includes  control
--           memory
--
-- Returns  now_ms, then code and until_ms (or empty) for each
--          PAUSED     until then
--          KEPT       its definition pauses it, which has no end; beside that this one is noted
--          UNKNOWN    there is none
--          STALE      it has another revision; nothing written
if not string.match(until_ms, '^%d*$') or not string.match(for_ms, '^%d*$') or not string.match(revision, '^%d*$')
  or #ARGV < FIRST or not is_nonce(nonce) then
  return refuse('until_ms, for_ms, nonce, revision and ids')
end
local earlier = remembered(nonce)
if earlier then return earlier end
local now = now_ms()
local until_ms = for_ms == '' and until_ms or whole(now + tonumber(for_ms))
if until_ms ~= '' and tonumber(until_ms) <= now then return refuse('until_ms is over') end
check_plan()

local reply = { whole(now) }
for i = FIRST, #ARGV do
  local id, stored = ARGV[i], redis.call('HGET', keys.schedule_paused, ARGV[i])
  local code, ends = judged(redis.call('HGET', keys.schedule_def, id), revision) or 'PAUSED', until_ms
  if code == 'PAUSED' and until_ms ~= '' and stored and is_by_definition(stored) then
    code, ends = 'KEPT', ''
    if (end_of(beside(stored)) or 0) < tonumber(until_ms) then
      put_beside(id, pause_of(reason, by, until_ms, now))
    end
  elseif code == 'PAUSED' then
    pause(id, reason, by, until_ms, now)
    look_at(id, 'pause', now)
  end
  reply[#reply + 1], reply[#reply + 2] = code, ends
end
return remember(nonce, reply)
