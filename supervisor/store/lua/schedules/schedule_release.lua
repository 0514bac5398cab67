-- End the suspension of schedules by one who suspended them. A person's pause is left as it is.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  by             who suspended them
--       ids...         at most 250
-- Includes  control
--
-- Returns  now_ms, then code for each
--          RELEASED   the suspension is over; due times in it are dropped, unless on_resume is catchup
--          RUNNING    it was not suspended by this one; nothing written. A repeated call answers so
--          UNKNOWN    there is none
if by == '' or #ARGV < FIRST then return refuse('by and ids') end
check_plan()
local now = now_ms()
local reply = { whole(now) }
for i = FIRST, #ARGV do
  local code = 'UNKNOWN'
  local record = redis.call('HGET', keys.schedule_def, ARGV[i])
  if record then
    code = 'RUNNING'
    local stored = redis.call('HGET', keys.schedule_paused, ARGV[i])
    if stored and is_top_level(stored, 'by', by) then
      resume(ARGV[i], record, stored, now)
      code = 'RELEASED'
    end
  end
  reply[#reply + 1] = code
end
return reply
