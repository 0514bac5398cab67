-- Delete dynamic schedules. What they counted and how they were paused is remembered for a day; runs go on.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  items...       id and expected revision (or empty), at most 250 times
-- Includes  lives
--
-- Returns  now_ms, then code and revision for each
--          DELETED   it is gone
--          GONE      it was deleted within the last day; a repeated call answers so
--          UNKNOWN   there is none
--          CONFLICT  its revision is not the expected one; nothing written
--          CLASH     it is static: only a configuration without it removes it; nothing written
if #ARGV == 0 or #ARGV % 2 ~= 0 then return refuse('id and expected revision') end
check_plan()
local now = now_ms()
local reply = { whole(now) }
for i = FIRST, #ARGV, 2 do
  local id, code = ARGV[i], 'DELETED'
  local record = redis.call('HGET', keys.schedule_def, id)
  local revision, _, set = definition_of(record)
  if not record then
    local memory = recall(redis.call('HGET', keys.schedule_gone, id))
    code = memory and memory.at >= now - REMEMBERED_MS and 'GONE' or 'UNKNOWN'
  elseif set ~= 'dynamic' then
    code = 'CLASH'
  elseif ARGV[i + 1] ~= '' and ARGV[i + 1] ~= revision then
    code = 'CONFLICT'
  else
    bury(id, now)
    tell('delete', id)
  end
  reply[#reply + 1], reply[#reply + 2] = code, revision or '0'
end
purge(now, 3)
return reply
