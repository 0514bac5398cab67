-- Verify, a page at a time, what runs hold beside their queues, and mend what is wrong.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  part           unique: holders of unique keys; slots: of one concurrency key; live: unfinished runs of schedules
--       key            with slots: the concurrency key
--       position       0 at first, then the one of the previous page
--       is_mending     1: what is wrong is mended; 0: nothing is written
-- Includes  limits
--           live
--
-- Returns  next position (0 at the end), then what, what is wrong, what was done about it (or empty): for each fault
if not_whole(position) or (is_mending ~= '0' and is_mending ~= '1') then
  return refuse('position, and is_mending 0 or 1')
end
local is_mending, COUNT = is_mending == '1', 100
local reply = {}

local function tell(what, fault, remedy)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = what, fault, is_mending and remedy or ''
  return is_mending
end

if part == 'unique' then
  local page = redis.call('HSCAN', keys.limit_unique, position, 'COUNT', COUNT)
  reply[1] = page[1]
  for n = 1, #page[2], 2 do
    local unique, holder = page[2][n], page[2][n + 1]
    if not unfinished_of(holder)[1] and tell('unique key ' .. unique, 'held by ' .. holder .. ', which is over', 'freed') then
      redis.call('HDEL', keys.limit_unique, unique)
    end
  end
elseif part == 'slots' then
  local set = keys.limit_slots(key)
  local page = redis.call('SSCAN', set, position, 'COUNT', COUNT)
  reply[1] = page[1]
  for _, holder in ipairs(page[2]) do
    local queue, id = string.match(holder, '^(%S+) (%S+)$')
    if (not queue or redis.call('HEXISTS', keys.run(queue), id) == 0)
      and tell('concurrency key ' .. key, 'a slot is held by ' .. holder .. ', which does not run', 'freed') then
      redis.call('SREM', set, holder)
      tell_waiting(key)
    end
  end
elseif part == 'live' then
  local page = redis.call('HSCAN', keys.schedule_live, position, 'COUNT', COUNT)
  reply[1] = page[1]
  for n = 1, #page[2], 2 do
    local schedule = page[2][n]
    for line in string.gmatch(page[2][n + 1], '[^\n]+') do
      if string.sub(line, 1, 1) ~= '>' and not unfinished_of(line)[1]
        and tell('schedule ' .. schedule, 'waits for ' .. line .. ', which is over', 'forgotten') then
        live_remove(schedule, string.match(line, '^%S+ (.*)$') or '')
      end
    end
  end
else
  return refuse('part ' .. part)
end
return reply
