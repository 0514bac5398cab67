-- Put runs into their queues.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  nonce          of this call, kept for its retries; remembered for ten minutes
--       memory_ms      how long their queue knows the ids after this, because a caller chose them; 0: while the runs exist
--       runs...        id, queue, delay_ms, data, once for each run; where memory_ms is not 0 also its content: the digest of
--                      its job and arguments
-- Includes  limits
--
-- Returns  one digit for each run: 1 new, 0 its id was there or is remembered, 2 refused, because another unfinished run holds its unique
--          key, 3 refused, because as many runs wait in its queue as may (length_max), and so for all new ones after it,
--          4 refused, because its id is that of a run of another job, or with other arguments, 5 refused, because its id would be
--          one of a schedule's runs; then, each on a line of its own, the ids of those holders of unique keys. A repeated nonce gets the first reply again,
--          also when the runs have ended since.
local is_remembered = memory_ms ~= '0'
local FIELDS, MEMORY_MS = is_remembered and 5 or 4, 600000
local memory = keys.enqueues(nonce)
local earlier = redis.call('GET', memory)
if earlier then return earlier end
local last = #ARGV
if last < FIRST - 1 + FIELDS or nonce == '' or not_whole(memory_ms) or (last - FIRST + 1) % FIELDS ~= 0 then
  return refuse('nonce, memory_ms and runs of id, queue, delay_ms, data, content')
end

-- Runs of one queue, kind and priority share what is checked, asked and written.
local by_queue, order = {}, {}
for i = FIRST, last, FIELDS do
  local queue, data = ARGV[i + 1], ARGV[i + 3]
  local of = by_queue[queue]
  if not of then
    of = { name = queue, ids = {}, ran = {}, places = {}, heads = {}, kinds = {}, lists = {} }
    by_queue[queue] = of
    order[#order + 1] = of
  end
  local n, head = #of.ids + 1, string.sub(data, 1, 3)
  local kind = of.kinds[head]
  if (not kind or string.byte(head, 3) == 91) and not is_head(data)
    or (ARGV[i + 2] ~= '0' and not string.find(ARGV[i + 2], '^%d+$')) then
    return refuse('delay or data of ' .. ARGV[i])
  end
  if not kind then
    local list = ready(queue, head) -- shared by those with limits and those without
    kind = of.lists[list] or { list = list, letter = string.sub(head, 1, 1), ids = {} }
    of.lists[list], of.kinds[head] = kind, kind
  end
  of.ids[n], of.places[n], of.heads[n] = ARGV[i], i, kind
  if is_remembered then
    of.ran[n] = keys.ran_in(queue, ARGV[i])
  end
end
local bound = redis.pcall('GET', keys.length_max)
local most = type(bound) == 'string' and natural(bound) or nil -- what is no number bounds nothing
for _, of in ipairs(order) do -- raises, before the first write, if a key is not ours
  for head in pairs(of.kinds) do
    check_types(of.name, head)
  end
  of.room = most and most - waiting(of.name) or math.huge
end

-- Whether an id that a caller chose belongs to another run than the one of this `content` and `data`. `claim`: the content that
-- is remembered for it, empty if a former version wrote it; `known`: the data of the run that has it.
local function is_taken(claim, content, known, data)
  if claim and claim ~= '' then
    return claim ~= content
  end
  return known and job_of(known) ~= job_of(data)
end

-- Whether an id that a caller chose is one that a schedule gives its runs by itself: of a due time, of a forced backfill, the
-- initial one or that of a change. Longer ones are a job's, made of the id of its own run. It is asked once for each name.
local FORMS = { '^@%d+$', '^@%d+#%d+$', '^!initial$', '^!changed!%x+$' }
local names = {}
local function is_of_schedule(id)
  local name, rest = string.match(id, '^([^@!]+)([@!].*)$')
  local is_form = false
  for _, form in ipairs(name and FORMS or {}) do
    is_form = is_form or string.find(rest, form) ~= nil
  end
  if not is_form then return false end
  if names[name] == nil then
    names[name] = redis.pcall('HEXISTS', keys.schedule_def, name) == 1 -- a key of another type defines none
  end
  return names[name]
end

local now = now_ms()
local digits, holders = {}, {}
for _, of in ipairs(order) do
  local known, fresh, seen, new, later = redis.call('HMGET', keys.data(of.name), unpack(of.ids)), {}, {}, 0, {}
  for n, i in ipairs(of.places) do
    local id, data, digit = ARGV[i], ARGV[i + 3], '0'
    local claim = is_remembered and redis.pcall('GET', of.ran[n])
    claim = type(claim) == 'string' and claim -- a key of another type claims nothing
    local is_new = not known[n] and not seen[id] and not claim
    if is_new and is_remembered and is_of_schedule(id) then
      digit = '5'
    elseif is_new and new >= of.room then
      digit = '3'
    elseif is_remembered and is_taken(claim, ARGV[i + 4], known[n], data) then
      digit = '4'
    elseif is_new then
      local holder
      digit = '1'
      if string.byte(data, 3) == 91 then
        holder = select(2, create(of.name, id, data))
        if not holder and ARGV[i + 2] == '0' then
          replace_older(of.name, id, data)
        end
      else
        local at = #fresh
        fresh[at + 1], fresh[at + 2] = id, data
      end
      if holder then
        digit, holders[i] = '2', string.gsub(holder, '^%S+ ', '')
      else
        seen[id], new = true, new + 1
        if is_remembered then
          redis.call('SET', of.ran[n], ARGV[i + 4], 'PX', memory_ms)
          forget_end(id)
        end
        local ids = ARGV[i + 2] == '0' and of.heads[n].ids or later
        ids[#ids + 1] = ids == later and i or id
      end
    end
    digits[(i - FIRST) / FIELDS + 1] = digit
  end
  if #fresh > 0 then
    redis.call('HSET', keys.data(of.name), unpack(fresh))
  end
  for _, i in ipairs(later) do
    delay(of.name, ARGV[i], ARGV[i + 3], now + tonumber(ARGV[i + 2]))
  end
  local bells = { a = 0, s = 0 }
  for _, kind in pairs(of.lists) do
    if #kind.ids > 0 then
      redis.call('RPUSH', kind.list, unpack(kind.ids))
      bells[kind.letter] = bells[kind.letter] + #kind.ids
    end
  end
  redis.call('SADD', keys.queues, of.name)
  count_add(of.name, 'in', new)
  ring(of.name, 'a', math.min(bells.a, 4)) -- whoever wakes rings on while work is left
  ring(of.name, 's', math.min(bells.s, 4))
end
local lines = { table.concat(digits) }
for i = FIRST, last, FIELDS do
  lines[#lines + 1] = holders[i]
end
local reply = table.concat(lines, '\n')
redis.call('SET', memory, reply, 'PX', MEMORY_MS)
return reply
