-- End the pause of schedules: due times that passed in it are not made up for, unless on_resume is catchup.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  revision       of the definition that the request was judged by; empty: any
--       ids...         at most 250
-- Includes  control
--
-- Returns  now_ms, then code and watermark for each
--          RESUMED    the pause is over; of a schedule with jitter, or that was behind before it, once the leader has looked
--          RUNNING    it was not paused; nothing written. A repeated call answers so, after that look
--          UNKNOWN    there is none
--          STALE      it has another revision; nothing written
if not string.match(revision or '', '^%d*$') or #ARGV < FIRST then return refuse('revision and ids') end
check_plan()
local now = now_ms()
local reply = { whole(now) }
for i = FIRST, #ARGV do
  local id = ARGV[i]
  local record = redis.call('HGET', keys.schedule_def, id)
  local paused = redis.call('HGET', keys.schedule_paused, id)
  local code = judged(record, revision) or 'RUNNING'
  if code == 'RUNNING' and paused then
    resume(id, record, paused, now)
    code = 'RESUMED'
  end
  reply[#reply + 1], reply[#reply + 2] = code, whole(mark_of(id))
end
return reply
