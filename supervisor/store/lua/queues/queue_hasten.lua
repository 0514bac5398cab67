-- Let delayed runs start now.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  runs...        queue (empty: where it is found), id and job (empty: any), at most 100 times
-- Includes  place
--
-- Returns  for each run: queue (empty: unknown), and where it was: later (now it is ready), or where it still is
--
-- As when its time had come: what failed goes to the head, since it is older than what waits, any other to the tail, also
-- one that asked to run again; one that crashed its worker goes on alone.
local reply, queues, refused = {}, queues_named(FIRST)
if refused then return refused end
for i = FIRST, #ARGV, RUN_FIELDS do
  local queue, id, n = queues[i], ARGV[i + 1], #reply
  local data = queue and redis.call('HGET', keys.data(queue), id)
  reply[n + 1], reply[n + 2] = data and queue or '', ''
  if data then
    reply[n + 2] = place_of(queue, id, data)
    if reply[n + 2] == 'later' then
      local attempts, crashes = charges(redis.call('HGET', keys.att(queue), id))
      if crashes > 0 then
        redis.call('RPUSH', keys.suspect(queue, string.sub(data, 1, 1)), id)
      else
        redis.call(attempts > 0 and 'LPUSH' or 'RPUSH', ready(queue, data), id)
      end
      redis.call('ZREM', keys.later(queue), id)
      ring(queue, string.sub(data, 1, 1), 1)
    end
  end
end
return reply
