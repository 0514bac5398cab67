-- Take out schedules that a configuration no longer names.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       part           see declare_page
--       ids...         at most 250
-- Includes  term
--           lives
--
-- Returns  one digit for each: 1 removed, 0 it was not there, or is dynamic
check_plan()
begin_part(part)
local now, reply = now_ms(), {}
for i = FIRST, #ARGV do
  local revision, _, set = definition_of(redis.call('HGET', keys.schedule_def, ARGV[i]))
  local is_static = revision ~= nil and set ~= 'dynamic'
  if is_static then
    bury(ARGV[i], now)
    tell('remove', ARGV[i])
  end
  reply[#reply + 1] = is_static and '1' or '0'
end
purge(now, 3)
return table.concat(reply)
