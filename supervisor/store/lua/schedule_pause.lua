-- Stop the scheduled and buffered starts of schedules, static or dynamic. Running jobs, triggers and backfills go on.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  reason         for people
--       by             who asks
--       until_ms       when it ends by itself; empty: never
--       for_ms         or: how long from this server's now; empty: see until_ms
--       nonce          of this call: sent again, it gets the same reply for ten minutes and moves no end
--       ids...         at most 250
--
-- Includes  clock
--           queue
--           limits
--           control
--           memory
--
-- Returns  now_ms, until_ms (or empty), then PAUSED or UNKNOWN for each
if not string.match(ARGV[3], '^%d*$') or not string.match(ARGV[4], '^%d*$') or #ARGV < 6 or not is_nonce(ARGV[5]) then
  return refuse('until_ms, for_ms, nonce and ids')
end
local earlier = remembered(ARGV[5])
if earlier then
  return earlier
end
local now = now_ms()
local until_ms = ARGV[4] == '' and ARGV[3] or whole(now + tonumber(ARGV[4]))
if until_ms ~= '' and tonumber(until_ms) <= now then
  return refuse('until_ms is over')
end
check_plan()
local reply = { whole(now), until_ms }
for i = 6, #ARGV do
  local is_known = redis.call('HEXISTS', SCHEDULE .. 'def', ARGV[i]) == 1
  if is_known then
    pause(ARGV[i], ARGV[1], ARGV[2], until_ms, now)
    look_at(ARGV[i], 'pause', now)
  end
  reply[#reply + 1] = is_known and 'PAUSED' or 'UNKNOWN'
end
return remember(ARGV[5], reply)
