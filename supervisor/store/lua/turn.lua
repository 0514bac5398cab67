-- One turn of a worker process: acknowledge what ended, promote what is due, fetch what may start. The only hot call.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  session        of the caller
--       seq            grows with each turn; a turn whose reply was lost is repeated with the same one
--       kind           a or s: which jobs the caller can run
--       want           how many runs it can start, 0 to 200
--       want_suspect   1: it is idle, so it can take one suspect run alone
--       history        how many ended attempts each queue remembers
--       dead_cap       how many dead runs each queue keeps
--       queue_count    how many queue names follow
--       ack_count      how many acknowledgements follow them
--       items...       queue names; then for each acknowledgement: id, queue, attempt, outcome, schedule, result,
--                      result_ttl_ms, retry_delay_ms, error, line, kind, child_count, where an empty one means none;
--                      then the children of all of them, in the same order: id, queue, delay_ms, data
--
-- Includes  clock
--           queue
--
-- Returns  LOST, now_ms: the session is not open. Nothing was done, and the caller must stop what it runs
--          TURN, now_ms, next_due_ms (or empty), stale ids, runs as id, queue, data, charges, is_suspect
--          error OLDSEQ: a later turn was answered
--
-- An acknowledgement counts only if (session, attempt) still owns the run; else its id comes back as stale and it has
-- no effect. The same (session, seq) again does nothing and gets its runs again.
-- Children come into being with the acknowledgement that carries them, all of them or none (adr/0018). One whose id
-- is in its queue already is left alone.
-- Order of the ready lists: high, normal, low, across all queues; in every tenth turn low comes first, so that it
-- cannot starve. Queues take turns at being first. An id without data was cancelled: it is dropped and not counted.
-- A run is written to `run` before it leaves its list, so that no error in between can lose it.
local ACK, CHILD, FIRST, PROMOTE_MAX, PASSES_MAX, CHILDREN_MAX = 12, 4, 10, 64, 10, 1000
local ENDS = { ok = true, expired = true, replaced = true } -- nothing of the run is kept but history and result
local OUTCOMES = { ok = true, expired = true, replaced = true, retry = true, dead = true, giveback = true }
local session, letter = ARGV[1], ARGV[3]
if not_whole(2, 2) or not_whole(4, 4) or not_whole(6, 9) or (letter ~= 'a' and letter ~= 's') then
  return refuse('seq, want, history, dead_cap, queue_count and ack_count must be whole numbers, kind a or s')
end
local seq, want, history, dead_cap = tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[6]), tonumber(ARGV[7])
local queues, acks = tonumber(ARGV[8]), tonumber(ARGV[9])
local first_ack = FIRST + queues
local first_child = first_ack + acks * ACK
if want > 200 or queues < 0 or acks < 0 or first_child > #ARGV + 1 then
  return refuse('want up to 200, and acknowledgements of 12 fields')
end
local children = {} -- index of an acknowledgement to that of its first child
local next_child = first_child
for i = first_ack, first_child - 1, ACK do
  if not_whole(i + 2, i + 2) or not_whole(i + 6, i + 7) or not_whole(i + 11, i + 11) or not OUTCOMES[ARGV[i + 3]]
    or tonumber(ARGV[i + 11]) < 0 then
    return refuse('acknowledgement of ' .. ARGV[i])
  end
  children[i] = next_child
  next_child = next_child + tonumber(ARGV[i + 11]) * CHILD
end
if next_child ~= #ARGV + 1 or next_child - first_child > CHILDREN_MAX * CHILD then
  return refuse('up to 1000 children of 4 fields, as many as the acknowledgements say')
end
for i = first_child, #ARGV, CHILD do
  if not string.match(ARGV[i + 2], '^%d+$') or not is_head(ARGV[i + 3]) then
    return refuse('delay or data of ' .. ARGV[i])
  end
end

local now = now_ms()
if redis.call('HEXISTS', KEYS[1] .. 'sessions', session) == 0 then
  return { 'LOST', whole(now) }
end
local stale, runs, stats = {}, {}, {}

local function count(queue, name)
  stats[queue] = stats[queue] or {}
  stats[queue][name] = (stats[queue][name] or 0) + 1
end

local function give(queue, id, data, att, is_suspect)
  local n = #runs
  runs[n + 1], runs[n + 2], runs[n + 3], runs[n + 4], runs[n + 5] = id, queue, data, att or '', is_suspect
end

local function next_due()
  local first = nil
  for i = FIRST, first_ack - 1 do
    local head = redis.call('ZRANGE', q(ARGV[i], 'later'), 0, 0, 'WITHSCORES')
    if head[2] and (not first or tonumber(head[2]) < first) then
      first = tonumber(head[2])
    end
  end
  return first and whole(first) or ''
end

-- A turn that was answered before: the reply again, from what was stored.
local last = redis.call('HGET', KEYS[1] .. 'turns', session)
local last_seq = last and tonumber(string.match(last, '^%d+'))
if last_seq and seq < last_seq then
  return redis.error_reply('OLDSEQ ' .. whole(last_seq))
end
if last_seq == seq then
  for what, queue, id in string.gmatch(last, '\n(%a) (%S+) (%S+)') do
    local token = what ~= 'x' and redis.call('HGET', q(queue, 'run'), id)
    if what == 'x' then
      stale[#stale + 1] = id
    elseif token and string.sub(token, 1, #session + 1) == session .. '|' then
      local data = redis.call('HGET', q(queue, 'data'), id)
      if data then
        give(queue, id, data, redis.call('HGET', q(queue, 'att'), id), what == 's' and '1' or '0')
      end
    end
  end
  return { 'TURN', whole(now), next_due(), stale, runs }
end

-- Acknowledgements.
local lists, born = {}, {} -- of the children: ready list to ids, queue to counts

local function beget(i)
  local queue, data = ARGV[i + 1], ARGV[i + 3]
  if not create(queue, ARGV[i], data) then
    return
  end
  local tally = born[queue] or { a = 0, s = 0, new = 0 }
  born[queue], tally.new = tally, tally.new + 1
  if ARGV[i + 2] ~= '0' then
    delay(queue, ARGV[i], data, now + tonumber(ARGV[i + 2]))
    return
  end
  local list, kind = ready(queue, data), string.sub(data, 1, 1)
  lists[list] = lists[list] or {}
  table.insert(lists[list], ARGV[i])
  tally[kind] = tally[kind] + 1
end

local function finish(queue, i)
  local id, outcome, schedule = ARGV[i], ARGV[i + 3], ARGV[i + 4]
  if ENDS[outcome] then
    if ARGV[i + 6] ~= '0' then
      redis.call('SET', KEYS[1] .. 'result:' .. id, ARGV[i + 5], 'PX', ARGV[i + 6])
    end
    for child = children[i], children[i] + (tonumber(ARGV[i + 11]) - 1) * CHILD, CHILD do
      beget(child)
    end
    live_remove(schedule, id, outcome)
    return outcome
  end
  local data = redis.call('HGET', q(queue, 'data'), id)
  if not data then -- cancelled while it ran
    forget(queue, schedule, id)
    return 'cancelled'
  end
  if outcome == 'giveback' then
    local kind = ARGV[i + 10] == '' and string.sub(data, 1, 1) or ARGV[i + 10]
    if kind ~= string.sub(data, 1, 1) then
      redis.call('HSET', q(queue, 'data'), id, kind .. string.sub(data, 2))
    end
    if ARGV[i + 7] ~= '0' then -- not yet: its worker does not know the job, and the next one may not either
      redis.call('ZADD', q(queue, 'later'), whole(now + tonumber(ARGV[i + 7])), id)
      return 'giveback'
    end
    redis.call('LPUSH', ready(queue, kind .. string.sub(data, 2, 2)), id)
    ring(queue, kind, 1)
    return 'giveback'
  end
  local _, crashes, interrupts = charges(redis.call('HGET', q(queue, 'att'), id))
  redis.call('HSET', q(queue, 'att'), id, ARGV[i + 2] .. ',' .. whole(crashes) .. ',' .. whole(interrupts))
  if outcome == 'dead' then
    give_up(queue, id, now, dead_cap, ARGV[i + 8])
    live_remove(schedule, id, 'dead')
    return 'dead'
  end
  if ARGV[i + 8] ~= '' then
    redis.call('HSET', q(queue, 'err'), id, ARGV[i + 8])
  end
  redis.call('ZADD', q(queue, 'later'), whole(now + tonumber(ARGV[i + 7])), id)
  return 'retry'
end

local checked = {}
for i = first_child, #ARGV, CHILD do -- raises, before the first write, if a key is not ours
  local head = string.sub(ARGV[i + 3], 1, 2)
  if not checked[ARGV[i + 1] .. ' ' .. head] then
    checked[ARGV[i + 1] .. ' ' .. head] = true
    check_types(ARGV[i + 1], head)
  end
end
local by_queue, ack_queues = {}, {}
for i = first_ack, first_child - 1, ACK do
  local queue = ARGV[i + 1]
  if not by_queue[queue] then
    by_queue[queue] = {}
    ack_queues[#ack_queues + 1] = queue
  end
  table.insert(by_queue[queue], i)
end
for _, queue in ipairs(ack_queues) do
  local ids, owned = {}, {}
  for n, i in ipairs(by_queue[queue]) do
    ids[n] = ARGV[i]
  end
  local tokens = redis.call('HMGET', q(queue, 'run'), unpack(ids))
  for n, i in ipairs(by_queue[queue]) do
    local mark = session .. '|' .. ARGV[i + 2] .. '|'
    if tokens[n] and string.sub(tokens[n], 1, #mark) == mark and not owned[ARGV[i]] then
      owned[ARGV[i]] = true
      owned[#owned + 1] = i
    else
      stale[#stale + 1] = ARGV[i]
      count(queue, 'stale_ack')
    end
  end
  for _, part in ipairs({ 'data', 'att', 'err' }) do -- raises, before the first write, if a key is not ours
    redis.call('HLEN', q(queue, part))
  end
  redis.call('ZCARD', q(queue, 'later'))
  redis.call('ZCARD', q(queue, 'dead'))
  for _, i in ipairs(owned) do
    local data = ARGV[i + 3] == 'giveback' and redis.call('HGET', q(queue, 'data'), ARGV[i])
    if data then
      local kind = ARGV[i + 10] == '' and string.sub(data, 1, 1) or ARGV[i + 10]
      redis.call('LLEN', ready(queue, kind .. string.sub(data, 2, 2)))
    end
  end
  local running, done = {}, {}
  for _, i in ipairs(owned) do
    running[#running + 1] = ARGV[i]
    if ENDS[ARGV[i + 3]] then
      done[#done + 1] = ARGV[i]
    end
  end
  if #running > 0 then -- deletions first: they are allowed when memory is full, and free some
    redis.call('HDEL', q(queue, 'run'), unpack(running))
  end
  if #done > 0 then
    for _, part in ipairs({ 'data', 'att', 'err' }) do
      redis.call('HDEL', q(queue, part), unpack(done))
    end
  end
  for n = #owned, 1, -1 do -- backwards: what is given back keeps its order at the head
    local i = owned[n]
    local outcome = finish(queue, i)
    count(queue, outcome)
    if outcome ~= 'giveback' and ARGV[i + 9] ~= '' then
      history_add(queue, history, ARGV[i + 9])
    end
  end
end

for list, ids in pairs(lists) do
  redis.call('RPUSH', list, unpack(ids))
end
for queue, tally in pairs(born) do
  redis.call('SADD', KEYS[1] .. 'queues', queue)
  count_add(queue, 'in', tally.new)
  ring(queue, 'a', math.min(tally.a, 4)) -- whoever wakes rings on while work is left
  ring(queue, 's', math.min(tally.s, 4))
end

-- Promotion of what is due. A retry is older than what waits, so it goes to the head.
local function promote(queue)
  local due = redis.call('ZRANGEBYSCORE', q(queue, 'later'), '-inf', whole(now), 'LIMIT', 0, PROMOTE_MAX)
  if #due == 0 then
    return
  end
  local data = redis.call('HMGET', q(queue, 'data'), unpack(due))
  local att = redis.call('HMGET', q(queue, 'att'), unpack(due))
  local bells = {}
  for n, id in ipairs(due) do
    if data[n] then
      local kind = string.sub(data[n], 1, 1)
      redis.call(att[n] and 'LPUSH' or 'RPUSH', ready(queue, data[n]), id)
      bells[kind] = (bells[kind] or 0) + 1
    else
      forget(queue, '', id)
    end
    redis.call('ZREM', q(queue, 'later'), id)
  end
  for kind, n in pairs(bells) do
    ring(queue, kind, math.min(n, 4))
  end
end

local open = {}
for n = 0, queues - 1 do
  local queue = ARGV[FIRST + (n + seq) % queues]
  local head = redis.call('ZRANGE', q(queue, 'later'), 0, 0, 'WITHSCORES')
  if head[2] and tonumber(head[2]) <= now then
    promote(queue)
  end
  if want > 0 and redis.call('EXISTS', q(queue, 'paused')) == 0 then
    open[#open + 1] = queue
  end
end

-- Fetching. A foreign key in one queue must not hide what was taken from another: its error is told at the end, and
-- only by a turn that did nothing else.
local taken, failed = 0, nil
local function read(...)
  local reply = redis.pcall(...)
  if reply['err'] then
    failed = failed or reply['err']
    return nil
  end
  return reply
end

local function take(queue, list, limit, is_suspect)
  for _ = 1, PASSES_MAX do
    local ids = read('LRANGE', list, 0, limit - taken - 1)
    if not ids or #ids == 0 then
      return
    end
    local data = read('HMGET', q(queue, 'data'), unpack(ids))
    local att = data and read('HMGET', q(queue, 'att'), unpack(ids))
    if not att or not read('HMGET', q(queue, 'run'), ids[1]) then
      return
    end
    local tokens = {}
    for n, id in ipairs(ids) do
      if data[n] then
        local attempts = charges(att[n])
        tokens[#tokens + 1] = id
        tokens[#tokens + 1] = session .. '|' .. whole(attempts + 1) .. '|' .. whole(now)
        give(queue, id, data[n], att[n], is_suspect)
        taken = taken + 1
      end
    end
    if #tokens > 0 then
      redis.call('HSET', q(queue, 'run'), unpack(tokens))
    end
    redis.call('LTRIM', list, #ids, -1)
    for n, id in ipairs(ids) do
      if not data[n] then
        count(queue, 'cancelled')
        forget(queue, '', id)
      end
    end
    if taken >= limit then
      return
    end
  end
end

if want > 0 and ARGV[5] == '1' then
  for _, queue in ipairs(open) do
    if taken == 0 then
      take(queue, q(queue, 'suspect:' .. letter), 1, '1')
    end
  end
end
if taken == 0 then
  for _, priority in ipairs(seq % 10 == 0 and { 2, 0, 1 } or { 0, 1, 2 }) do
    for _, queue in ipairs(open) do
      if taken < want then
        take(queue, ready(queue, letter .. priority), want, '0')
      end
    end
  end
end

-- Work is left: wake another worker, unless one is being woken.
for _, queue in ipairs(open) do
  if redis.call('EXISTS', ready(queue, letter .. '0'), ready(queue, letter .. '1'), ready(queue, letter .. '2')) > 0
    and redis.call('EXISTS', q(queue, 'bell:' .. letter)) == 0 then
    ring(queue, letter, 1)
  end
end

if failed and #runs == 0 and acks == 0 then
  return redis.error_reply(failed)
end

-- What a repeated turn needs. A turn that did nothing may simply be done again.
if #runs > 0 or acks > 0 then
  local record = { whole(seq) }
  for _, id in ipairs(stale) do
    record[#record + 1] = 'x - ' .. id
  end
  for n = 1, #runs, 5 do
    record[#record + 1] = (runs[n + 4] == '1' and 's ' or 'r ') .. runs[n + 1] .. ' ' .. runs[n]
  end
  redis.call('HSET', KEYS[1] .. 'turns', session, table.concat(record, '\n'))
end
for queue, names in pairs(stats) do
  for name, n in pairs(names) do
    count_add(queue, name, n)
  end
end
return { 'TURN', whole(now), next_due(), stale, runs }
