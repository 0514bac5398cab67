-- Give runs another priority.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  priority       0 high, 1 normal, 2 low
--       runs...        queue (empty: where it is found), id and job (empty: any), at most 100 times
-- Includes  place
--
-- Returns  for each run: queue (empty: unknown), where it is, its former priority
--
-- One that is ready goes to the tail of its new list. Elsewhere the priority holds from when the run is ready again.
if not string.match(priority or '', '^[012]$') then
  return refuse('a priority of 0, 1 or 2, and up to 100 runs of queue, id and job')
end
local queues, refused = queues_named(FIRST)
if refused then return refused end

local function change(queue, id, data)
  local place, list = place_of(queue, id, data)
  local former = string.sub(data, 2, 2)
  if former ~= priority then
    local new = string.sub(data, 1, 1) .. priority .. string.sub(data, 3)
    redis.call('HSET', keys.data(queue), id, new)
    if place == 'ready' then
      leave(queue, id, place, list)
      redis.call('RPUSH', ready(queue, new), id)
      ring(queue, string.sub(new, 1, 1), 1)
    end
  end
  return place, former
end

local reply = {}
for i = FIRST, #ARGV, RUN_FIELDS do
  local queue, id, n = queues[i], ARGV[i + 1], #reply
  local data = queue and redis.call('HGET', keys.data(queue), id)
  reply[n + 1], reply[n + 2], reply[n + 3] = data and queue or '', '', ''
  if data then
    reply[n + 2], reply[n + 3] = change(queue, id, data)
  end
end
return reply
