-- One turn of a worker process: acknowledge what ended, promote what is due, fetch what may start. The only hot call.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  session        of the caller
--       seq            grows with each turn; a turn whose reply was lost is repeated with the same one
--       letter         a or s: which jobs the caller can run
--       want           how many runs it can start, 0 to 200
--       want_suspect   1: it is idle, so it can take one suspect run alone
--       history        how many ended attempts each queue remembers
--       dead_cap       how many dead runs each queue keeps
--       queue_count    how many queues follow, with two items each
--       ack_count      how many acknowledgements follow them
--       items...       for each queue: name, and how many of its runs may be fetched; then for each acknowledgement:
--                      its history line, `<id>|<outcome>|<attempt>|…`, and `<queue> <fetched_ms>`; where there is more
--                      to say, after that ` <schedule> <result_ttl_ms> <retry_delay_ms> <kind> <child_count>`,
--                      - meaning none, and the result or the error, or empty; where ` x` follows, also JSON of what it
--                      leaves behind: keep, counts, errors, then, steps (adr/0030); then the children of all of them, in
--                      the same order: id, queue, delay_ms, data
--
-- Includes  fetch
--
-- Returns  LOST, now_ms: the session is not open, or a turn before this one is not known here: Redis went back, and what
--          the caller has finished since is in its hands again. Nothing was done, and the caller must stop what it runs
--          TURN, now_ms, next_due_ms (or empty), stale ids, runs as id, data, `<queue>[ <charges>][ s][ @<fetched_ms>]`;
--          s: a suspect; fetched_ms: where it is not now_ms
--          error OLDSEQ: a later turn was answered
--
-- An acknowledgement counts only if its very execution, session, attempt and when it was fetched, still owns the run; else
-- its id comes back as stale and it has no effect. The same (session, seq) again does nothing and gets its runs again.
-- Children come into being with the acknowledgement that carries them, all of them or none (adr/0018). One whose id
-- is in its queue already is left alone; one whose unique key another run holds ends at once (adr/0021).
-- An id without data was cancelled: it is dropped and not counted.
-- A run is written to `run` before it leaves its list, so that no error in between can lose it.
local CHILD, CHILDREN_MAX = 4, 1000
local ENDS = { ok = true, expired = true, replaced = true, cancelled = true, rejected = true } -- only history and result are kept
local OUTCOMES = { ok = true, expired = true, replaced = true, cancelled = true, rejected = true, retry = true,
  dead = true, giveback = true }

-- The acknowledgements, by queue. Most have nothing in `more`: for them there is no table, only places in these.
local by_queue, ack_queues, child_count = {}, {}, 0
local function more_of(text, payload)
  local schedule, ttl, delay, kind, children, left = string.match(text, '^ (%S+) (%d+) (%d+) ([as-]) (%d+)( ?x?)$')
  if not schedule or not payload then
    return nil
  end
  local more = { is_leaving = left ~= '', schedule = schedule ~= '-' and schedule or '', ttl = ttl, delay = tonumber(delay),
    kind = kind ~= '-' and kind or nil, children = tonumber(children), first_child = child_count, payload = payload }
  child_count = child_count + more.children
  return more
end
local NOTHING_MORE = { schedule = '', ttl = '0', delay = 0, children = 0, first_child = 0, payload = '' }

-- Read so many acknowledgements from ARGV; the place behind them, or nil and what is wrong.
local function read_acks(next_ack, acks)
  local places = {} -- of most the same text says where they are and since when
  for _ = 1, acks do
    local line, where, more = ARGV[next_ack] or '', ARGV[next_ack + 1] or '', nil
    local place = places[where]
    if not place then
      place = { string.match(where, '^(%S+) (%d+)(.*)$') }
      places[where] = place
    end
    local queue = place[1]
    if queue and place[3] ~= '' then
      more = more_of(place[3], ARGV[next_ack + 2])
      queue, next_ack = more and queue, next_ack + 1
      if more and more.is_leaving then
        local is_json, left_behind = pcall(cjson.decode, ARGV[next_ack + 2])
        more.left_behind, next_ack = is_json and type(left_behind) == 'table' and left_behind or nil, next_ack + 1
        if not more.left_behind then
          return nil, 'what ' .. line .. ' leaves behind'
        end
      end
    end
    next_ack = next_ack + 2
    local id, outcome, attempt = string.match(line, '^([^|]+)|(%l+)|(%d+)|')
    if not queue or not OUTCOMES[outcome] then
      return nil, 'acknowledgement ' .. line
    end
    local of = by_queue[queue]
    if not of then
      of = { name = queue, ids = {}, outcomes = {}, attempts = {}, fetched = {}, lines = {}, more = {} }
      by_queue[queue] = of
      ack_queues[#ack_queues + 1] = of
    end
    local n = #of.ids + 1
    of.ids[n], of.outcomes[n], of.attempts[n], of.fetched[n] = id, outcome, attempt, place[2]
    of.lines[n], of.more[n] = line, more
  end
  return next_ack
end

-- What is wrong with the children of all acknowledgements; nil for nothing.
local function children_fault(first)
  if first + child_count * CHILD ~= #ARGV + 1 or child_count > CHILDREN_MAX then
    return 'up to 1000 children of 4 fields, as many as the acknowledgements say'
  end
  for i = first, #ARGV, CHILD do
    if not string.find(ARGV[i + 2], '^%d+$') or not is_head(ARGV[i + 3]) then
      return 'delay or data of ' .. ARGV[i]
    end
  end
  return nil
end

local stats = {}
local function count(queue, name, n)
  stats[queue] = stats[queue] or {}
  stats[queue][name] = (stats[queue][name] or 0) + (n or 1)
end

-- Everything below is of one turn `t`: session, now, history, dead_cap, first_child, and stale, to which ids are added.

local lists, born = {}, {} -- ready list to ids, queue to counts
local function beget(parent, i)
  local queue, data = ARGV[i + 1], ARGV[i + 3]
  local is_new, holder = create(queue, ARGV[i], data)
  if is_new or holder then
    tally_add(parent, 'total', 1)
    tally_add(parent, is_new and 'left' or 'duplicate', 1)
  end
  if not is_new then
    return holder and refuse_twin(queue, ARGV[i], data, holder, t.history, t.now)
  end
  local tally = born[queue] or { a = 0, s = 0, new = 0 }
  born[queue], tally.new = tally, tally.new + 1
  if ARGV[i + 2] ~= '0' then
    delay(queue, ARGV[i], data, t.now + tonumber(ARGV[i + 2]))
    return
  end
  replace_older(queue, ARGV[i], data)
  local list, kind = ready(queue, data), string.sub(data, 1, 1)
  lists[list] = lists[list] or {}
  table.insert(lists[list], ARGV[i])
  tally[kind] = tally[kind] + 1
end

local function push(list, ...)
  for _, value in ipairs({ ... }) do
    list[#list + 1] = value
  end
end

-- What becomes of a run whose attempt ended; it is in `run` no more, and out of `data` if it is over. `kept`: what is
-- written for all of them together.
local function finish(queue, id, outcome, attempt, fetched, more, data, att, kept)
  if ENDS[outcome] then
    if more.ttl ~= '0' then
      redis.call('SET', keys.result(id), more.payload, 'PX', more.ttl)
    end
    if more.children > 0 or (more.left_behind and outcome == 'ok') then
      pcall(tally_open, id, more.children > 0, more.left_behind or {})
    end
    for child = more.first_child, more.first_child + more.children - 1 do
      beget(id, t.first_child + child * CHILD)
    end
    live_remove(more.schedule, id, outcome)
    return outcome
  end
  if data and outcome ~= 'dead' and is_cancelled(queue, id, t.session .. '|' .. attempt .. '|' .. fetched) then
    redis.call('HDEL', keys.data(queue), id)
    forget(queue, more.schedule, id)
    return 'cancelled', true
  end
  if not data then -- cancelled while it ran
    forget(queue, more.schedule, id)
    return 'cancelled'
  end
  if outcome == 'giveback' then
    local kind = more.kind or string.sub(data, 1, 1)
    if kind ~= string.sub(data, 1, 1) then
      redis.call('HSET', keys.data(queue), id, kind .. string.sub(data, 2))
    end
    if more.delay > 0 then -- its worker does not know the job, and the next one may not either
      redis.call('ZADD', keys.later(queue), whole(t.now + more.delay), id)
      return 'giveback'
    end
    redis.call('LPUSH', ready(queue, kind .. string.sub(data, 2, 2)), id)
    ring(queue, kind, 1)
    return 'giveback'
  end
  local _, crashes, interrupts = charges(att)
  local charged = attempt .. ',' .. whole(crashes) .. ',' .. whole(interrupts)
  if outcome == 'dead' then
    redis.call('HSET', keys.att(queue), id, charged)
    give_up(queue, id, t.now, t.dead_cap, more.payload)
    if more.left_behind and tallies.above[id] then -- why it failed, but not what it counted
      pcall(tally_open, id, false, { errors = more.left_behind.errors })
    end
    live_remove(more.schedule, id, 'dead')
    return 'dead'
  end
  push(kept.att, id, charged)
  if more.payload ~= '' then
    push(kept.err, id, more.payload)
  end
  push(kept.later, whole(t.now + more.delay), id)
  return 'retry'
end

-- Which acknowledgements count: those whose run the caller still owns, once. `owned` are their places.
local function own(of)
  local tokens, seen, token, attempt, fetched = redis.call('HMGET', keys.run(of.name), unpack(of.ids)), {}, '', '', ''
  local owned, ids, over, later = {}, {}, {}, {}
  for n, id in ipairs(of.ids) do
    if of.attempts[n] ~= attempt or of.fetched[n] ~= fetched then
      attempt, fetched = of.attempts[n], of.fetched[n]
      token = t.session .. '|' .. attempt .. '|' .. fetched
    end
    if tokens[n] == token and not seen[id] then
      seen[id] = true
      owned[#owned + 1], ids[#ids + 1] = n, id
      local which = ENDS[of.outcomes[n]] and over or later
      which[#which + 1] = id
    else
      t.stale[#t.stale + 1] = id
      count(of.name, 'stale_ack')
    end
  end
  of.owned, of.owned_ids, of.over, of.later = owned, ids, over, later
end

-- Raise, before the first write, if a key is not ours.
local function check_ack_types(of)
  redis.call('HLEN', keys.data(of.name))
  of.has_att = redis.call('HLEN', keys.att(of.name)) > 0
  of.has_err = redis.call('HLEN', keys.err(of.name)) > 0
  if #of.later == 0 then
    return
  end
  redis.call('ZCARD', keys.later(of.name))
  redis.call('ZCARD', keys.dead(of.name))
  for _, n in ipairs(of.owned) do
    local data = of.outcomes[n] == 'giveback' and redis.call('HGET', keys.data(of.name), of.ids[n])
    if data then
      local kind = of.more[n] and of.more[n].kind or string.sub(data, 1, 1)
      redis.call('LLEN', ready(of.name, kind .. string.sub(data, 2, 2)))
    end
  end
end

local function settle(of)
  local queue = of.name
  if #of.owned == 0 then
    return
  end
  -- Deletions first: they are allowed when memory is full, and free some.
  redis.call('HDEL', keys.run(queue), unpack(of.owned_ids))
  if #of.over > 0 then
    redis.call('HDEL', keys.data(queue), unpack(of.over))
    if of.has_att then
      redis.call('HDEL', keys.att(queue), unpack(of.over))
    end
    if of.has_err then
      redis.call('HDEL', keys.err(queue), unpack(of.over))
    end
  end
  local counted = release_all(queue, of.over, true)
  release_all(queue, of.later, false)
  local lines, plain, kept, data, att = {}, 0, { att = {}, err = {}, later = {} }, {}, {}
  if #of.later > 0 then
    local known = redis.call('HMGET', keys.data(queue), unpack(of.later))
    local charged = of.has_att and redis.call('HMGET', keys.att(queue), unpack(of.later)) or {}
    for n, id in ipairs(of.later) do
      data[id], att[id] = known[n] or nil, charged[n] or nil
    end
  end
  for k = #of.owned, 1, -1 do -- backwards: what is given back keeps its order at the head
    local n = of.owned[k]
    local id, outcome = of.ids[n], of.outcomes[n]
    if counted and counted[id] then
      tally_end(id, counted[id], outcome)
    end
    if outcome == 'ok' and not of.more[n] and not string.find(id, '[@!]') then
      plain = plain + 1
    else
      local how, is_unwanted = finish(queue, id, outcome, of.attempts[n], of.fetched[n], of.more[n] or NOTHING_MORE,
        data[id], att[id], kept)
      count(queue, how)
      if is_unwanted then
        of.lines[n], of.outcomes[n] = string.gsub(of.lines[n], '^([^|]+)|%l+|', '%1|cancelled|', 1), 'cancelled'
      end
    end
  end
  for _, n in ipairs(of.owned) do
    if of.outcomes[n] ~= 'giveback' then
      lines[#lines + 1] = of.lines[n]
    end
  end
  if #kept.later > 0 then
    redis.call('HSET', keys.att(queue), unpack(kept.att))
    redis.call('ZADD', keys.later(queue), unpack(kept.later))
  end
  if #kept.err > 0 then
    redis.call('HSET', keys.err(queue), unpack(kept.err))
  end
  if plain > 0 then
    count(queue, 'ok', plain)
  end
  history_extend(queue, t.history, lines)
end

-- Settle all acknowledgements, and bring their children into being.
local function settle_acks(turn)
  t = turn
  local checked = {}
  for i = t.first_child, #ARGV, CHILD do
    local head = string.sub(ARGV[i + 3], 1, 3)
    if not checked[ARGV[i + 1] .. ' ' .. head] then
      checked[ARGV[i + 1] .. ' ' .. head] = true
      check_types(ARGV[i + 1], head)
    end
  end
  for _, of in ipairs(ack_queues) do
    own(of)
    check_ack_types(of)
  end
  tallies.is_held = true
  for _, of in ipairs(ack_queues) do
    settle(of)
  end
  for list, ids in pairs(lists) do
    redis.call('RPUSH', list, unpack(ids))
  end
  for queue, tally in pairs(born) do
    redis.call('SADD', keys.queues, queue)
    count_add(queue, 'in', tally.new)
    ring(queue, 'a', math.min(tally.a, 4)) -- whoever wakes rings on while work is left
    ring(queue, 's', math.min(tally.s, 4))
  end
  tallies.is_held = false
  tally_settle()
end

local function write_stats()
  for queue, names in pairs(stats) do
    for name, n in pairs(names) do
      count_add(queue, name, n)
    end
  end
end

if not_whole(seq, want, history, dead_cap, queue_count, ack_count) or (letter ~= 'a' and letter ~= 's') then
  return refuse('seq, want, history, dead_cap, queue_count and ack_count must be whole numbers, letter a or s')
end
local seq, want, history, dead_cap = tonumber(seq), tonumber(want), tonumber(history), tonumber(dead_cap)
local queues, acks = tonumber(queue_count), tonumber(ack_count)
local first_ack = FIRST + 2 * queues
if want > 200 or queues < 0 or acks < 0 or first_ack + 2 * acks > #ARGV + 1 then
  return refuse('want up to 200, and acknowledgements of 2 or 3 fields')
end
for i = FIRST + 1, first_ack - 1, 2 do
  if not string.find(ARGV[i], '^%d+$') then
    return refuse('how many runs of ' .. ARGV[i - 1] .. ' may be fetched')
  end
end

local first_child, unread = read_acks(first_ack, acks)
local fault = unread or children_fault(first_child)
if fault then
  return refuse(fault)
end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(now_us / 1000)
local at = whole(now)
if redis.call('HEXISTS', keys.sessions, session) == 0 then
  return { 'LOST', at }
end
local stale, runs = {}, {}

local given = {} -- for each of runs, what the record calls it: r or s, and its queue
local function give(queue, id, data, att, is_suspect, fetched)
  local n, what = #runs, queue
  if att or is_suspect or fetched then
    what = queue .. (att and ' ' .. att or '') .. (is_suspect and ' s' or '') .. (fetched and ' @' .. fetched or '')
  end
  runs[n + 1], runs[n + 2], runs[n + 3] = id, data, what
  given[#given + 1] = is_suspect and 's ' .. queue or queue
end

-- When the first of the later runs is due, as far as each queue's is known: false where there is none.
local due_at = {}
local function next_due()
  local first = nil
  for i = FIRST, first_ack - 1, 2 do
    local due = due_at[ARGV[i]]
    if due == nil then
      due = tonumber((redis.pcall('ZRANGE', keys.later(ARGV[i]), 0, 0, 'WITHSCORES'))[2] or nil)
    end
    if due and (not first or due < first) then
      first = due
    end
  end
  return first and whole(first) or ''
end

-- A turn that was answered before: the reply again, from what was stored: `<seq> <wheel>`, then lines of ids of one
-- queue, `x` for stale ones, `r` and `s` for runs.
local last = redis.call('HGET', keys.turns, session)
local last_seq, wheel = string.match(last or '', '^(%d+) ?(%d*)')
last_seq, wheel = tonumber(last_seq), tonumber(wheel) or now % 10
if last_seq and seq < last_seq then
  return redis.error_reply('OLDSEQ ' .. whole(last_seq))
end
if last_seq and seq > last_seq + 1 then
  return { 'LOST', at }
end
if last_seq == seq then
  for what, queue, ids in string.gmatch(last, '\n(%a) (%S+) ([^\n]+)') do
    for id in string.gmatch(ids, '%S+') do
      local token = what ~= 'x' and redis.call('HGET', keys.run(queue), id)
      if what == 'x' then
        stale[#stale + 1] = id
      elseif token and string.sub(token, 1, #session + 1) == session .. '|' then
        local data = redis.call('HGET', keys.data(queue), id)
        if data then
          local fetched = string.match(token, '|(%d+)$')
          give(queue, id, data, redis.call('HGET', keys.att(queue), id), what == 's', fetched)
        end
      end
    end
  end
  return { 'TURN', at, next_due(), stale, runs }
end

local turn = { session = session, letter = letter, want = want, want_suspect = want_suspect == '1', wheel = wheel, now = now,
  now_us = now_us, history = history, dead_cap = dead_cap, first_child = first_child, stale = stale, due_at = due_at,
  give = give, count = count }
settle_acks(turn)

-- Fetching.
if want > 0 then
  -- Deletes nothing. After a first write that memory which is full does not refuse, a script is refused none: so what is
  -- queued can begin and end, which is what frees memory, and no write can fail half-way.
  redis.call('HDEL', keys.turns, '')
end
local open, turned = {}, queues > 0 and (seq + now_us) % queues or 0
for n = 0, queues - 1 do
  local place = FIRST + 2 * ((n + turned) % queues)
  local queue = ARGV[place]
  due_at[queue] = promote(queue, now)
  if want > 0 and redis.call('EXISTS', keys.paused(queue)) == 0 then
    open[#open + 1] = { name = queue, room = tonumber(ARGV[place + 1]) }
  end
end
turn.open = open
local failed = fetch(turn)
if failed and #runs == 0 and acks == 0 then
  return redis.error_reply(failed)
end

-- What a repeated turn needs. Each leaves its number, also one that got nothing: a copy of it that comes after its caller
-- went on would fetch runs that nobody asks for again, and a number that is missing shows that Redis went back.
local record = { whole(seq) .. ' ' .. whole((wheel + #given) % 10) }
if #stale > 0 then
  record[2] = 'x - ' .. table.concat(stale, ' ')
end
local n = 1
while n <= #given do
  local what, ids = given[n], {}
  repeat
    ids[#ids + 1] = runs[3 * n - 2]
    n = n + 1
  until given[n] ~= what
  record[#record + 1] = (string.find(what, ' ', 1, true) and what or 'r ' .. what) .. ' ' .. table.concat(ids, ' ')
end
redis.call('HSET', keys.turns, session, table.concat(record, '\n'))
write_stats()
return { 'TURN', at, next_due(), stale, runs }
