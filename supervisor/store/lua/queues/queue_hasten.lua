-- Let delayed runs start now.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  runs...        queue (empty: where it is found), id and job (empty: any), at most 100 times
--
-- Includes  place
--
-- Returns  for each run: queue (empty: unknown), and where it was: later (now it is ready), or where it still is
--
-- As when its time had come: a retry goes to the head, since it is older than what waits, any other to the tail; one that
-- crashed its worker goes on alone.
local FIELDS = 3
if #ARGV == 0 or #ARGV % FIELDS ~= 0 or #ARGV > 100 * FIELDS then
  return refuse('up to 100 runs of queue, id and job')
end
local queues = {}
for i = FIRST, #ARGV, FIELDS do
  queues[i] = queue_of(ARGV[i], ARGV[i + 1], ARGV[i + 2])
  if queues[i] then
    check_queue(queues[i])
  end
end
local reply = {}
for i = FIRST, #ARGV, FIELDS do
  local queue, id, n = queues[i], ARGV[i + 1], #reply
  local data = queue and redis.call('HGET', keys.data(queue), id)
  reply[n + 1], reply[n + 2] = data and queue or '', ''
  if data then
    reply[n + 2] = place_of(queue, id, data)
    if reply[n + 2] == 'later' then
      local charged = redis.call('HGET', keys.att(queue), id)
      local _, crashes = charges(charged)
      if crashes > 0 then
        redis.call('RPUSH', keys.suspect(queue, string.sub(data, 1, 1)), id)
      else
        redis.call(charged and 'LPUSH' or 'RPUSH', ready(queue, data), id)
      end
      redis.call('ZREM', keys.later(queue), id)
      ring(queue, string.sub(data, 1, 1), 1)
    end
  end
end
return reply
