-- Library of the turn: acknowledgements and the children that they carry, as they were sent, and what they cause.
-- Includes  waiting
--           run_logs
local CHILD, CHILDREN_MAX = 4, 1000
local ENDS = { ok = true, expired = true, replaced = true, cancelled = true, rejected = true } -- only history and result are kept
local OUTCOMES = { ok = true, expired = true, replaced = true, cancelled = true, rejected = true, retry = true,
  dead = true, giveback = true, again = true }
local UNFINISHED = { replaced = true, retry = true, giveback = true, again = true } -- over, where a person cancelled it

local MARKS = { [''] = true, [' x'] = true, [' l'] = true, [' x l'] = true } -- what follows a payload

-- The acknowledgements, by queue. Most have nothing in `more`: for them there is no table, only places in these.
local by_queue, ack_queues, child_count = {}, {}, 0
local function more_of(text, payload)
  local schedule, ttl, delay, kind, children, marks =
      string.match(text, '^ (%S+) (%d+) (%d+) ([as-]) (%d+)([ xl]*)$')
  if not schedule or not payload or not MARKS[marks] then return nil end
  local more = { is_leaving = string.find(marks, 'x', 1, true), has_log = string.find(marks, 'l', 1, true),
    schedule = schedule ~= '-' and schedule or '', ttl = ttl, delay = tonumber(delay), kind = kind ~= '-' and kind or nil, children = tonumber(children), first_child = child_count, payload = payload }
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
        if not more.left_behind then return nil, 'what ' .. line .. ' leaves behind' end
      end
      if more and more.has_log then
        more.log, next_ack = ARGV[next_ack + 2] or '', next_ack + 1
      end
    end
    next_ack = next_ack + 2
    local id, outcome, attempt = string.match(line, '^([^|]+)|(%l+)|(%d+)|')
    if not queue or not OUTCOMES[outcome] then return nil, 'acknowledgement ' .. line end
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
    if not string.find(ARGV[i + 2], '^%d+$') or not is_head(ARGV[i + 3]) then return 'delay or data of ' .. ARGV[i] end
  end
  return nil
end

local stats = {}
local function count(queue, name, n)
  stats[queue] = stats[queue] or {}
  stats[queue][name] = (stats[queue][name] or 0) + (n or 1)
end

-- Everything below is of one turn `t`: session, now, history, dead_cap, first_child, and stale and refused, to which ids and
-- `<queue> <id>` are added.

local lists, born = {}, {} -- ready list to ids, queue to counts
local function beget(parent, i)
  local id, queue, wait, data = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local is_new, holder = create(queue, id, data)
  tally_begin(parent, id, is_new and 'left' or refuse_twin(queue, id, data, holder, t.history, t.now))
  if not is_new then return end
  local tally = born[queue] or { a = 0, s = 0, new = 0 }
  born[queue], tally.new = tally, tally.new + 1
  if wait ~= '0' then
    delay(queue, id, data, t.now + tonumber(wait))
    return
  end
  replace_older(queue, id, data)
  local list, kind = ready(queue, data), string.sub(data, 1, 1)
  lists[list] = lists[list] or {}
  table.insert(lists[list], id)
  tally[kind] = tally[kind] + 1
end

local function push(list, ...)
  for _, value in ipairs({ ... }) do
    list[#list + 1] = value
  end
end

-- What becomes of a run whose attempt ended; it is in `run` no more, and out of `data` if it is over. `kept`: what is
-- written for all of them together.
local function finish(queue, id, outcome, attempt, more, data, att, kept)
  if ENDS[outcome] then
    if more.ttl ~= '0' then
      redis.call('SET', keys.result(id), more.payload, 'PX', more.ttl)
    end
    if more.children > 0 or (more.left_behind and outcome == 'ok') then
      pcall(tally_open, id, more.children > 0, more.left_behind or {}, more.schedule)
    end
    for child = more.first_child, more.first_child + more.children - 1 do
      beget(id, t.first_child + child * CHILD)
    end
    live_remove(more.schedule, id, outcome)
    return outcome
  end
  if not data then -- cancelled while it ran
    forget(queue, more.schedule, id)
    return 'cancelled'
  end
  local attempts, crashes, interrupts = charges(att)
  if outcome == 'giveback' then
    local kind = more.kind or string.sub(data, 1, 1)
    if kind ~= string.sub(data, 1, 1) then
      data = kind .. string.sub(data, 2)
      redis.call('HSET', keys.data(queue), id, data)
    end
    if more.delay > 0 then -- its worker does not know the job, and the next one may not either
      put_off(queue, id, data, att, t.now + more.delay)
      return 'giveback'
    end
    go_back(queue, id, data, crashes)
    ring(queue, kind, 1)
    return 'giveback'
  end
  if outcome == 'again' then -- its job asked for it; counted as an interruption, so that the fence a job sees grows
    push(kept.att, id, whole(attempts) .. ',' .. whole(crashes) .. ',' .. whole(interrupts + 1))
    push(kept.later, whole(t.now + more.delay), id)
    forget_losses(queue, id)
    note_asked(queue, id, att)
    return 'again'
  end
  local charged = attempt .. ',' .. whole(crashes) .. ',' .. whole(interrupts)
  if outcome == 'dead' then
    redis.call('HSET', keys.att(queue), id, charged)
    give_up(queue, id, t.now, t.dead_cap, more.payload)
    if more.left_behind and tallies.above[id] then -- why it failed, but not what it counted
      pcall(tally_open, id, false, { errors = more.left_behind.errors })
    end
    live_remove(more.schedule ~= '' and more.schedule or schedule_of(id, data), id, 'dead') -- unreadable: by its id
    return 'dead'
  end
  push(kept.att, id, charged)
  if more.payload ~= '' then
    push(kept.err, id, more.payload)
  end
  push(kept.later, whole(t.now + more.delay), id)
  return 'retry'
end

-- Whether the children of an acknowledgement can come into being: a key of their queues that is not ours would leave half of them.
local checked = {}
local function can_beget(more)
  for child = more.first_child, more.first_child + more.children - 1 do
    local queue, head = ARGV[t.first_child + child * CHILD + 1], string.sub(ARGV[t.first_child + child * CHILD + 3], 1, 3)
    local place = queue .. ' ' .. head
    if checked[place] == nil then
      checked[place] = pcall(check_types, queue, head)
    end
    if not checked[place] then return false end
  end
  return true
end

-- Which acknowledgements count: those whose run the caller still owns, once. `owned` are their places, `refused` those
-- of which nothing can be written now.
local function own(of)
  local tokens, seen, token, attempt, fetched = redis.call('HMGET', keys.run(of.name), unpack(of.ids)), {}, '', '', ''
  local owned, ids, over, later, refused, stale = {}, {}, {}, {}, {}, {}
  for n, id in ipairs(of.ids) do
    if of.attempts[n] ~= attempt or of.fetched[n] ~= fetched then
      attempt, fetched = of.attempts[n], of.fetched[n]
      token = t.session .. '|' .. attempt .. '|' .. fetched
    end
    local more = of.more[n]
    if tokens[n] ~= token or seen[id] then
      stale[#stale + 1] = id
    elseif more and more.children > 0 and not can_beget(more) then
      refused[#refused + 1] = id
    else
      if UNFINISHED[of.outcomes[n]] and is_cancelled(of.name, id, token) then
        of.outcomes[n], of.lines[n] = 'cancelled', string.gsub(of.lines[n], '^([^|]+)|%l+|', '%1|cancelled|', 1)
      end
      seen[id] = true
      owned[#owned + 1], ids[#ids + 1] = n, id
      local which = ENDS[of.outcomes[n]] and over or later
      which[#which + 1] = id
    end
  end
  of.owned, of.owned_ids, of.over, of.later, of.refused, of.stale = owned, ids, over, later, refused, stale
end

-- Raise, before the first write, if a key is not ours.
local function check_ack_types(of)
  redis.call('HLEN', keys.data(of.name))
  of.has_att = redis.call('HLEN', keys.att(of.name)) > 0
  of.has_err = redis.call('HLEN', keys.err(of.name)) > 0
  if #of.later == 0 then return end
  redis.call('ZCARD', keys.later(of.name))
  redis.call('ZCARD', keys.dead(of.name))
  for _, n in ipairs(of.owned) do
    local data = of.outcomes[n] == 'giveback' and redis.call('HGET', keys.data(of.name), of.ids[n])
    if data then
      local kind = of.more[n] and of.more[n].kind or string.sub(data, 1, 1)
      redis.call('LLEN', ready(of.name, kind .. string.sub(data, 2, 2)))
      redis.call('LLEN', keys.suspect(of.name, kind))
    end
  end
end

-- Keep the output that acknowledgements carry; before any other write, so that a full memory refuses it, and nothing else.
local function keep_logs(of)
  for _, n in ipairs(of.owned) do
    if of.more[n] and of.more[n].log then
      local born, number, output = string.match(of.more[n].log, '^(%d+) (%d+) (.*)$')
      if born and not pcall(log_write, of.ids[n], born, number, output, t.now) then return end
    end
  end
end

local function settle(of)
  local queue = of.name
  if #of.owned == 0 then return end
  local awaited, envelopes = awaited_of(of.over), {}
  for id in pairs(awaited or {}) do
    envelopes[id] = redis.call('HGET', keys.data(queue), id)
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
      count(queue, finish(queue, id, outcome, of.attempts[n], of.more[n] or NOTHING_MORE, data[id], att[id], kept))
    end
    if awaited and awaited[id] then
      local ttl = of.more[n] and of.more[n].ttl or '0'
      tell_acknowledged(id, awaited[id], of.lines[n], envelopes[id], ttl ~= '0', ttl)
    end
  end
  for _, n in ipairs(of.owned) do
    if of.outcomes[n] ~= 'giveback' and of.outcomes[n] ~= 'again' then
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

-- Settle all acknowledgements, and bring their children into being. What a foreign key keeps from being written holds up no
-- other: it is refused, and its caller sends it again.
local function settle_acks(turn)
  t = turn
  for _, of in ipairs(ack_queues) do
    if not (pcall(own, of) and pcall(check_ack_types, of)) then -- nothing of its queue was written
      of.owned, of.refused, of.stale = {}, of.ids, {}
    end
    for _, id in ipairs(of.stale) do
      t.stale[#t.stale + 1] = id
      count(of.name, 'stale_ack')
    end
    for _, id in ipairs(of.refused) do
      t.refused[#t.refused + 1] = of.name .. ' ' .. id
    end
  end
  for _, of in ipairs(ack_queues) do
    keep_logs(of)
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
  if tallies.longest > 0 then tally_settle() end
end

local function write_stats()
  for queue, names in pairs(stats) do
    for name, n in pairs(names) do
      count_add(queue, name, n)
    end
  end
end
