-- Library: runs that take the place of older ones with their concurrency key.
--
--   limit:n               hash    concurrency key to `queue id` of the newest run that replaces others
-- Includes  limits

-- Ask the runs that hold slots of a key longest to give way to newer ones, until `wanted` of them were asked. The agents
-- of their replicas look (queue_unwanted.lua); one that has not ended after YIELD_MS is let go of.
local YIELD_MS, YIELD_REQUEST_MS, YIELD_LOOK_MAX = 30000, 86400000, 50
local function ask_to_yield(key, wanted)
  local holders, asked, now = {}, 0, now_ms()
  local sample = redis.pcall('SRANDMEMBER', keys.limit_slots(key), YIELD_LOOK_MAX)
  for _, holder in ipairs(sample['err'] and {} or sample) do
    local queue, id = string.match(holder, '^(%S+) (%S+)$')
    local token = queue and redis.pcall('HGET', keys.run(queue), id)
    local request = queue and redis.pcall('HGET', keys.cancel(queue), id)
    if type(request) == 'string' and type(token) == 'string' and string.find(request, token, 1, true) then
      asked = asked + 1
    elseif type(token) == 'string' then
      holders[#holders + 1] = { queue = queue, id = id, token = token, at = tonumber(string.match(token, '|(%d+)$')) or 0 }
    end
  end
  table.sort(holders, function(a, b) return a.at < b.at or (a.at == b.at and a.id < b.id) end)
  for n = 1, math.min(#holders, wanted - asked) do
    local of = holders[n]
    redis.pcall('HSET', keys.cancel(of.queue), of.id, 'yield|' .. of.token .. '|' .. whole(now + YIELD_MS))
    redis.pcall('PEXPIRE', keys.cancel(of.queue), YIELD_REQUEST_MS)
  end
end

-- A run that may begin replaces older ones with its key, if it is of that sort: also while no worker is free to take it.
local function replace_older(queue, id, data)
  local header = header_of(data)
  local of = header and limits_in(header)
  if not of or not of.is_replacing then return end
  redis.pcall('HSET', keys.limit_newest, of.concurrency, queue .. ' ' .. id)
  local held = redis.pcall('SCARD', of.slots)
  if type(held) == 'number' and of.max and held >= of.max then
    ask_to_yield(of.concurrency, held - of.max + 1)
  end
end

-- Make a run exist, and put it where it waits: `wait` ms from now, or ready. Answers as `create`; the history, of up to
-- `cap`, says so of one that ended at once because another holds its unique key.
local function admit(queue, id, data, wait, cap)
  local is_new, holder = create(queue, id, data)
  if holder then
    refuse_twin(queue, id, data, holder, cap, now_ms())
  elseif is_new then
    redis.call('SADD', keys.queues, queue)
    if wait > 0 then
      delay(queue, id, data, now_ms() + wait)
    else
      replace_older(queue, id, data)
      redis.call('RPUSH', ready(queue, data), id)
      ring(queue, string.sub(data, 1, 1), 1)
    end
    count_add(queue, 'in', 1)
  end
  return is_new, holder
end
