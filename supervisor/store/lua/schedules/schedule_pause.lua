-- Stop the scheduled and buffered starts of schedules, static or dynamic. Running jobs, triggers and backfills go on.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  reason         for people
--       by             who asks
--       until_ms       when it ends by itself; empty: never
--       for_ms         or: how long from this server's now; empty: see until_ms
--       nonce          of this call: sent again, it gets the same reply for ten minutes and moves no end
--       revision       of the definition that the request was judged by; empty: any
--       selected       1: they were selected, not named: no pause that lasts longer is made shorter
--       ids...         at most 250
-- Includes  control
--           memory
--
-- Returns  now_ms, then code and until_ms (or empty) for each
--          PAUSED     until then
--          KEPT       it was paused for longer, until then; beside a definition's pause this one is noted, else nothing written
--          UNKNOWN    there is none
--          STALE      it has another revision; nothing written
if not string.match(until_ms, '^%d*$') or not string.match(for_ms, '^%d*$') or not string.match(revision, '^%d*$')
  or not string.match(selected, '^[01]$') or #ARGV < FIRST or not is_nonce(nonce) then
  return refuse('until_ms, for_ms, nonce, revision, selected and ids')
end
local earlier = remembered(nonce)
if earlier then return earlier end
local now = now_ms()
local until_ms = for_ms == '' and until_ms or whole(now + tonumber(for_ms))
if until_ms ~= '' and tonumber(until_ms) <= now then return refuse('until_ms is over') end
check_plan()

-- Whether a pause lasts longer than this one, and stays: a definition's ends by no time.
local function outlasts(stored)
  if not stored or until_ms == '' then return false end
  return is_by_definition(stored)
    or (selected == '1' and not is_suspension(stored) and (end_of(stored) or math.huge) > tonumber(until_ms))
end

local reply = { whole(now) }
for i = FIRST, #ARGV do
  local id, stored = ARGV[i], redis.call('HGET', keys.schedule_paused, ARGV[i])
  local code, ends = judged(redis.call('HGET', keys.schedule_def, id), revision) or 'PAUSED', until_ms
  if code == 'PAUSED' and outlasts(stored) then
    code, ends = 'KEPT', end_of(stored) and whole(end_of(stored)) or ''
    if is_by_definition(stored) and (end_of(beside(stored)) or 0) < tonumber(until_ms) then
      put_beside(id, pause_of(reason, by, until_ms, now))
    end
  elseif code == 'PAUSED' then
    pause(id, reason, by, until_ms, now)
    look_at(id, 'pause', now)
  end
  reply[#reply + 1], reply[#reply + 2] = code, ends
end
return remember(nonce, reply)
