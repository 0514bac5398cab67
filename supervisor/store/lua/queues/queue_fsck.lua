-- Verify a queue's invariants at one moment. Writes nothing. For a queue with much in it: queue_fsck_page, queue_fsck_run.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--       limit          with more runs than this, whether every run is somewhere is not asked
-- Includes  queue
--
-- Returns  one line for each violation, at most 100
--          A run is in exactly one place: one ready or suspect list, once; or running; or later; or blocked; or dead.
--          What is dead or blocked has data. What is charged has data. A list may hold ids without data, and entries that
--          are counted as stale: both are dropped when they are met.
--          A run that holds limits exists and is not dead; it has a slot of its concurrency key as long as it runs.
--          Whoever runs something has an open or dying session. Counters of charges can be read.
local LIMIT, FOUND_MAX = tonumber(limit), 100
local found, place, cancelled, stale, total = {}, {}, {}, {}, redis.call('HLEN', keys.data(queue))
local is_whole = total <= LIMIT

local function violation(id, what)
  if #found < FOUND_MAX then
    found[#found + 1] = id .. ': ' .. what
  end
end

local function put(id, where)
  if place[id] then
    violation(id, 'in ' .. place[id] .. ' and in ' .. where)
  end
  place[id] = where
end

local function has_data(id)
  return redis.call('HEXISTS', keys.data(queue), id) == 1
end

local running = redis.call('HSCAN', keys.run(queue), 0, 'COUNT', LIMIT)[2]
for i = 1, #running, 2 do
  local session = string.match(running[i + 1], '^(.*)|%d+|%d+$')
  put(running[i], 'run')
  if not session then
    violation(running[i], 'its fence cannot be read')
  elseif redis.call('HEXISTS', keys.sessions, session) == 0
    and redis.call('SISMEMBER', keys.dying, session) == 0 then
    violation(running[i], 'runs in session ' .. session .. ', which is neither open nor dying')
  end
end
for _, one in ipairs({ { 'later', keys.later(queue) }, { 'dead', keys.dead(queue) } }) do
  local name = one[1]
  for _, id in ipairs(redis.call('ZRANGE', one[2], 0, LIMIT)) do
    put(id, name)
    if name == 'dead' and not has_data(id) then
      violation(id, 'in dead without data')
    end
  end
end
for _, name in ipairs(waiting_lists()) do
  for _, id in ipairs(redis.call('LRANGE', keys.queue(queue) .. name, 0, LIMIT)) do
    local data, entry = redis.call('HGET', keys.data(queue), id), name .. ' ' .. id
    stale[entry] = stale[entry] or tonumber(redis.call('HGET', keys.stale(queue), entry) or 0)
    if stale[entry] > 0 then
      stale[entry] = stale[entry] - 1
    elseif data then
      put(id, name)
      local letter, priority = string.match(name, ':(%a):?(%d?)$')
      if string.sub(data, 1, 1) ~= letter or (priority ~= '' and string.sub(data, 2, 2) ~= priority) then
        violation(id, 'in ' .. name .. ' but its data says ' .. string.sub(data, 1, 2))
      end
    else
      cancelled[id] = true
    end
  end
end
for entry, count in pairs(stale) do
  if count > 0 then
    violation(entry, 'counted as stale more often than it is there')
  end
end
local blocked = redis.call('HSCAN', keys.blocked(queue), 0, 'COUNT', LIMIT)[2]
for i = 1, #blocked, 2 do
  put(blocked[i], 'blocked')
  if not has_data(blocked[i]) then
    violation(blocked[i], 'blocked without data')
  end
end
local held = redis.call('HSCAN', keys.limits(queue), 0, 'COUNT', LIMIT)[2]
for i = 1, #held, 2 do
  local id, header = held[i], held[i + 1]
  local key = string.match(header, '[%[;]c%d+:([^;%]]+)')
  local has_slot = key and redis.call('SISMEMBER', keys.limit_slots(key), queue .. ' ' .. id) == 1
  if not has_data(id) or place[id] == 'dead' then
    violation(id, 'holds limits, and is over')
  elseif key and has_slot ~= (place[id] == 'run') then
    violation(id, 'in ' .. (place[id] or 'no place') .. (has_slot and ' with' or ' without') .. ' a slot of ' .. key)
  end
end
local charged = redis.call('HSCAN', keys.att(queue), 0, 'COUNT', LIMIT)[2]
for i = 1, #charged, 2 do
  if not has_data(charged[i]) and not place[charged[i]] and not cancelled[charged[i]] then
    violation(charged[i], 'charged without data')
  end
  if not is_charge(charged[i + 1]) then
    violation(charged[i], 'its charges cannot be read')
  end
end
if is_whole then
  for _, id in ipairs(redis.call('HKEYS', keys.data(queue))) do
    if not place[id] then
      violation(id, 'in no list: it would never run')
    end
  end
end
return found
