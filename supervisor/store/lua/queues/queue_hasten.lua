-- Let delayed runs start now.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  runs...        queue (empty: where it is found), id and job (empty: any), at most 100 times
-- Includes  place
--
-- Returns  for each run: queue (empty: unknown), and where it was: later (now it is ready), or where it still is
--
-- As when its time had come (lib/waiting.lua): to the same list and end of it, and a newer one replaces older ones.
local reply, queues, refused = {}, queues_named(FIRST)
if refused then return refused end
for i = FIRST, #ARGV, RUN_FIELDS do
  local queue, id, n = queues[i], ARGV[i + 1], #reply
  local data = queue and redis.call('HGET', keys.data(queue), id)
  reply[n + 1], reply[n + 2] = data and queue or '', ''
  if data then
    reply[n + 2] = place_of(queue, id, data)
    if reply[n + 2] == 'later' then
      local att = redis.call('HGET', keys.att(queue), id)
      local list, is_older = lane_of(queue, id, data, att)
      redis.call(is_older and 'LPUSH' or 'RPUSH', list, id)
      redis.call('ZREM', keys.later(queue), id)
      if not att then
        replace_older(queue, id, data)
      end
      ring(queue, string.sub(data, 1, 1), 1)
    end
  end
end
return reply
