-- Find the queues in which runs wait that no open session takes. Changes nothing of ours.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  cursor         0 at first, then the one of the previous page
-- Includes  clock
--           served
--
-- Returns  cursor (0 at the end), then queue, kind (a or s) and how many runs wait there: for each. One may come twice.
local PAGE = 500
if not string.match(cursor, '^%d+$') then return refuse('cursor') end
local _, is_served = served_pairs()

local function length(command, key)
  local count = redis.pcall(command, key)
  return type(count) == 'number' and count or 0
end

-- Delayed runs that came due are moved on by a worker of either kind: how many, by the kind of the first of them.
local now = whole(now_ms())
local function overdue(queue)
  if is_served[queue .. ' a'] or is_served[queue .. ' s'] then return {} end
  local found = redis.pcall('ZRANGEBYSCORE', keys.later(queue), '-inf', now, 'LIMIT', 0, 1)
  local first = ours('ZREM', keys.later(queue), found)[1]
  local data = first and redis.pcall('HGET', keys.data(queue), first)
  if type(data) ~= 'string' then return {} end
  return { [string.sub(data, 1, 1)] = redis.call('ZCOUNT', keys.later(queue), '-inf', now) }
end

local page = redis.call('SSCAN', keys.queues, cursor, 'COUNT', PAGE)
local reply = { page[1] }
for _, queue in ipairs(ours('SREM', keys.queues, page[2])) do
  local due = overdue(queue)
  for _, letter in ipairs({ 'a', 's' }) do
    if not is_served[queue .. ' ' .. letter] then
      local waiting = length('LLEN', keys.suspect(queue, letter)) + (due[letter] or 0)
      for priority = 0, 2 do
        waiting = waiting + length('LLEN', keys.ready(queue, letter, priority))
      end
      if waiting > 0 then
        local n = #reply
        reply[n + 1], reply[n + 2], reply[n + 3] = queue, letter, whole(waiting)
      end
    end
  end
end
return reply
