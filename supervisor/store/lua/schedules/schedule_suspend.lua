-- Stop the starts of schedules because what they run cannot work. A person's pause is left as it is.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  by             who suspends; only a suspension by the same is replaced
--       reason         for people
--       for_ms         how long, from this server's now
--       ids...         at most 250
-- Includes  control
--
-- Returns  now_ms, until_ms, then code for each
--          SUSPENDED  it starts nothing until then, or until it is released
--          HELD       it was paused before, by somebody else; nothing written
--          UNKNOWN    there is none
if by == '' or not string.match(for_ms or '', '^[1-9]%d*$') or #ARGV < FIRST then
  return refuse('by, for_ms and ids')
end
check_plan()
local now = now_ms()
local until_ms = whole(now + tonumber(for_ms))
local reply = { whole(now), until_ms }
for i = FIRST, #ARGV do
  local code = 'UNKNOWN'
  if redis.call('HEXISTS', keys.schedule_def, ARGV[i]) == 1 then
    local stored = redis.call('HGET', keys.schedule_paused, ARGV[i])
    local ends = end_of(stored)
    local is_over = not stored or (ends ~= nil and ends <= now)
    if is_over or is_top_level(stored, 'by', by) then
      pause(ARGV[i], reason, by, until_ms, now)
      look_at(ARGV[i], 'pause', now)
      code = 'SUSPENDED'
    else
      code = 'HELD'
    end
  end
  reply[#reply + 1] = code
end
return reply
