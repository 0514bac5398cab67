-- Drop the due times that wait in the buffers of schedules; they count as dropped.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  ids...         at most 250
-- Includes  control
--
-- Returns  how many were dropped, for each
if #ARGV == 0 then return refuse('ids') end
check_plan()
local now, reply = now_ms(), {}
for i = FIRST, #ARGV do
  local id = ARGV[i]
  local buffer = keys.schedule_buffer(id)
  local count = redis.call('LLEN', buffer)
  if count > 0 then
    local state = redis.call('HGET', keys.schedule_state, id) or ''
    local numbers = counters(state)
    numbers[5], numbers[8], numbers[9] = numbers[5] + count, 0, 0
    redis.call('DEL', buffer)
    redis.call('HSET', keys.schedule_state, id, with_counters(state, numbers))
    look_at(id, 'drop', now)
  end
  reply[i] = whole(count)
end
return reply
