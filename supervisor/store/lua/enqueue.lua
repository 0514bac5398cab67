-- Put runs into their queues.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  nonce          of this call, kept for its retries; remembered for ten minutes
--       runs...        id, queue, delay_ms, data, once for each run
--
-- Includes  clock
--           queue
--
-- Returns  one digit for each run: 1 new, 0 its id was there. A repeated nonce gets the first reply again, also when
--          the runs have ended since.
local FIELDS, MEMORY_MS = 4, 600000
local memory = KEYS[1] .. 'enqueues:' .. ARGV[1]
local earlier = redis.call('GET', memory)
if earlier then
  return earlier
end
if ARGV[1] == '' or #ARGV < 1 + FIELDS or (#ARGV - 1) % FIELDS ~= 0 then
  return refuse('nonce and runs of id, queue, delay_ms, data')
end
for i = 2, #ARGV, FIELDS do
  if not string.match(ARGV[i + 2], '^%d+$') or not is_head(ARGV[i + 3]) then
    return refuse('delay or data of ' .. ARGV[i])
  end
end
local checked = {}
for i = 2, #ARGV, FIELDS do
  local head = ARGV[i + 1] .. ' ' .. string.sub(ARGV[i + 3], 1, 2)
  if not checked[head] then
    checked[head] = true
    check_types(ARGV[i + 1], string.sub(ARGV[i + 3], 1, 2))
  end
end

local now = now_ms()
local reply, lists, counts = {}, {}, {}
for i = 2, #ARGV, FIELDS do
  local id, queue, wait, data = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
  local is_new = create(queue, id, data)
  if not counts[queue] then
    counts[queue] = { a = 0, s = 0, new = 0 }
    redis.call('SADD', KEYS[1] .. 'queues', queue)
  end
  if is_new then
    counts[queue].new = counts[queue].new + 1
  end
  if is_new and wait > 0 then
    delay(queue, id, data, now + wait)
  elseif is_new then
    local list, letter = ready(queue, data), string.sub(data, 1, 1)
    lists[list] = lists[list] or {}
    table.insert(lists[list], id)
    counts[queue][letter] = counts[queue][letter] + 1
  end
  reply[#reply + 1] = is_new and '1' or '0'
end
for list, ids in pairs(lists) do
  redis.call('RPUSH', list, unpack(ids))
end
for queue, count in pairs(counts) do
  count_add(queue, 'in', count.new)
  ring(queue, 'a', math.min(count.a, 4)) -- whoever wakes rings on while work is left
  ring(queue, 's', math.min(count.s, 4))
end
redis.call('SET', memory, table.concat(reply), 'PX', MEMORY_MS)
return table.concat(reply)
