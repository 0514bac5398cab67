-- Library of the turn: what is due becomes ready, and what is ready is given to a worker.
--
-- High, normal and low have 6, 3 and 1 of 10 slots while all have work; what one cannot use goes to the others, highest
-- first. The wheel below is smooth: the slots of one class are as far apart as can be, and no ten in a row lack any.
--
-- Includes  limits
--           stale
local PROMOTE_MAX, LOOK_MAX, KEYS_MAX, STEP_MIN, WOKEN_MAX = 64, 200, 40, 20, 8
local GHOSTS_MAX, AGAIN_MIN_US, AGAIN_EACH_US, LINE_MS = 2000, 300000000, 100000, 86400000
local WHEEL = { 0, 1, 0, 0, 1, 0, 2, 0, 1, 0 }
local WEIGHTS = { [0] = 6, 3, 1 }

-- Put ids that became ready into their lists: those of `heads` in front, the first one first.
local function make_ready(heads, tails)
  for list, ids in pairs(heads) do
    local turned = {}
    for n = #ids, 1, -1 do
      turned[#turned + 1] = ids[n]
    end
    redis.call('LPUSH', list, unpack(turned))
  end
  for list, ids in pairs(tails) do
    redis.call('RPUSH', list, unpack(ids))
  end
end

local function add(lists, list, id)
  lists[list] = lists[list] or {}
  table.insert(lists[list], id)
end

-- A foreign key in one queue must not hide what was taken from another, or stop what was acknowledged from being recorded:
-- its error is told at the end, and only by a turn that did nothing else.
local failed
local function read(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply['err'] then
    failed = failed or reply['err']
    return nil
  end
  return reply
end

-- Promote what is due. A retry, or a run that came too early for its rate, is older than what waits: it goes to the head.
-- One that crashed its worker goes on alone, so that it takes no neighbours with it.
-- Returns when the next one is due: false for none, or where a foreign key is in the way; nil where that is not known.
local function promote(queue, now)
  local later = keys.later(queue)
  local head = read('ZRANGE', later, 0, 0, 'WITHSCORES')
  local first = head and tonumber(head[2] or nil)
  if not first or first > now then
    return first or false
  end
  local due = redis.call('ZRANGEBYSCORE', later, '-inf', whole(now), 'LIMIT', 0, PROMOTE_MAX)
  local data, att = read('HMGET', keys.data(queue), unpack(due)), read('HMGET', keys.att(queue), unpack(due))
  if not data or not att then
    return false
  end
  local heads, tails, newer, gone, bells = {}, {}, {}, {}, { a = 0, s = 0 }
  for n, id in ipairs(due) do
    if data[n] then
      local kind, header = string.sub(data[n], 1, 1), header_of(data[n])
      local _, crashes = charges(att[n])
      if crashes > 0 then
        add(tails, keys.suspect(queue, kind), id)
      else
        add((att[n] or (header and limits_in(header).rate)) and heads or tails, ready(queue, data[n]), id)
        if header and not att[n] then
          newer[#newer + 1] = n
        end
      end
      bells[kind] = bells[kind] + 1
    else
      gone[#gone + 1] = id
    end
  end
  for _, lists in ipairs({ heads, tails }) do
    for list in pairs(lists) do
      if not read('LLEN', list) then
        return false
      end
    end
  end
  for _, id in ipairs(gone) do
    forget(queue, '', id)
  end
  for _, n in ipairs(newer) do
    replace_older(queue, due[n], data[n])
  end
  make_ready(heads, tails)
  redis.call('ZREMRANGEBYRANK', later, 0, #due - 1) -- just these: the earliest come first
  ring(queue, 'a', math.min(bells.a, 4))
  ring(queue, 's', math.min(bells.s, 4))
  return nil
end

-- Everything below is of one turn `t`: open queues, session, letter, want, wheel, now, now_us, want_suspect, give, count,
-- due_at.
local t

-- Whether behind the first in a list of those that wait for a slot there are `count` more that do.
local function are_behind(queue, wait, key, count)
  local ids = redis.call('LRANGE', wait, 1, count + LOOK_MAX)
  if #ids < count then
    return false
  end
  local live = 0
  for _, blocked in ipairs(redis.call('HMGET', keys.blocked(queue), unpack(ids))) do
    live = live + (blocked == key and 1 or 0)
  end
  return live >= count
end

-- Of the runs that wait for a slot and replace others, only the newest are still wanted.
local SUPERSEDED_MAX = 100
local function supersede(queue, id, data)
  for _, hash in ipairs({ keys.blocked(queue), keys.data(queue), keys.att(queue), keys.err(queue) }) do
    redis.call('HDEL', hash, id)
  end
  end_limits(queue, id, 'replaced')
  live_remove('', id, 'replaced')
  history_add(queue, t.history, table.concat({ id, 'replaced', '0', '', whole(t.now), whole(t.now),
    string.match(data, '"job":"([^"|]*)"') or '', 'a newer run took its place before it began' }, '|'))
  t.count(queue, 'replaced')
end

-- Runs that wait for a slot of a key come back to the head of their lists, as many as there is room for. Each is judged
-- again when it is taken.
local function wake(queue)
  local keys = read('SRANDMEMBER', keys.woken(queue), WOKEN_MAX) or {}
  if #keys == 0 or not read('HLEN', keys.blocked(queue)) then
    return
  end
  local heads, rung, looked, superseded = {}, {}, 0, 0
  for _, key in ipairs(keys) do
    local wait, held = keys.wait(queue, key), read('SCARD', keys.limit_slots(key))
    while held and looked < 2 * STEP_MIN and read('LLEN', wait) do
      looked = looked + 1
      local id = redis.call('LINDEX', wait, 0)
      if not id then
        redis.call('SREM', keys.limit_queues(key), queue)
        redis.call('SREM', keys.woken(queue), key)
        break
      end
      local is_waiting = redis.call('HGET', keys.blocked(queue), id) == key
      local data = is_waiting and redis.call('HGET', keys.data(queue), id)
      local of = data and limits_in(header_of(data) or '')
      local max = of and of.max
      local is_over = max and of.is_replacing and superseded < SUPERSEDED_MAX and are_behind(queue, wait, key, max)
      if is_over then
        looked, superseded = looked - 1, superseded + 1
        redis.call('LPOP', wait)
        supersede(queue, id, data)
      elseif max and held >= max then
        if of.is_replacing then
          ask_to_yield(key, redis.call('LLEN', wait))
        end
        redis.call('SREM', keys.woken(queue), key) -- the end of a holder will tell again
        break
      else
        redis.call('LPOP', wait)
        if data then
          redis.call('HDEL', keys.blocked(queue), id)
          add(heads, ready(queue, data), id)
          rung[string.sub(data, 1, 1)] = true
          held = held + 1
        elseif is_waiting then
          t.count(queue, 'cancelled')
          forget(queue, '', id)
        end
      end
    end
    told[key] = nil
  end
  make_ready(heads, {})
  rung[t.letter] = looked >= 2 * STEP_MIN or nil -- more than one turn can look at
  for kind in pairs(rung) do
    ring(queue, kind, 1)
  end
end

-- Whether the slot that `me` would take is free; healed where it is held by runs that do not run.
local function has_slot(of, me)
  local key = of.slots
  local held = t.slots[key]
  if not held then
    held, t.keys = read('SCARD', key), t.keys - 1
  end
  if not held then
    return nil
  end
  t.slots[key] = held
  if held < of.max then
    return true
  end
  if t.healed[key] or t.heals >= HEALED_MAX then
    return false
  end
  t.healed[key], t.heals = true, t.heals + 1
  for _, holder in ipairs(redis.call('SRANDMEMBER', key, SAMPLE)) do
    local queue, id = string.match(holder, '^(%S+) (%S+)$')
    if not t.admitted[holder] and (not queue or redis.pcall('HEXISTS', keys.run(queue), id) == 0) then
      t.slots[key] = t.slots[key] - redis.call('SREM', key, holder)
    end
  end
  return t.slots[key] < of.max
end

-- Which of `ids` wait for no rate: they are gone, execute, wait for a slot or are dead. Versions without a line leave them in it.
local function ghosts(queue, ids)
  local data, run = redis.call('HMGET', keys.data(queue), unpack(ids)), redis.call('HMGET', keys.run(queue), unpack(ids))
  local blocked, dead = read('HMGET', keys.blocked(queue), unpack(ids)), read('ZMSCORE', keys.dead(queue), unpack(ids))
  local gone = {}
  for n, id in ipairs(ids) do
    if not data[n] or run[n] or (blocked and blocked[n]) or (dead and dead[n]) then
      gone[#gone + 1] = id
    end
  end
  return gone
end

-- The line of those of a queue and kind that came too early for a rate, the oldest first. Who was purged, cancelled or moved leaves a
-- ghost: those at the head are taken out, so that nobody waits behind one.
local function line_of(queue, rate)
  local key = keys.rate(queue, t.letter, rate)
  local line = t.lines[key]
  if line then
    return line
  end
  local length, looked = read('ZCARD', key), 0
  t.keys = t.keys - 1
  while length and looked < math.min(length, GHOSTS_MAX) do
    local ids = redis.call('ZRANGE', key, looked, looked + STEP_MIN - 1)
    local gone = ghosts(queue, ids)
    if #gone == 0 then
      break
    end
    length, looked = length - redis.call('ZREM', key, unpack(gone)), looked + #ids - #gone
  end
  line = length and { key = key, queue = queue, length = length, into = {}, out = {}, left = {} }
  t.lines[key] = line
  return line
end

-- How many are in front of a run in its line, and its rank there; without one it would be the last.
local function place_in(line, id)
  local rank, before = redis.call('ZRANK', line.key, id), 0
  for _, other in ipairs(line.left) do
    before = before + ((not rank or other < rank) and 1 or 0)
  end
  return (rank or line.length + #line.into) - before, rank
end

-- Whether the rate allows a start now, of a run that is not before its turn, and else when to try again. `tat`: when the
-- bucket would be full again.
local function is_early(of, queue, id)
  local key, line = keys.limit_rate(of.rate), line_of(queue, of.rate)
  local bucket = t.buckets[key]
  if line and not bucket then
    local stored = read('GET', key)
    t.keys = t.keys - 1
    if stored ~= nil then
      bucket = { tat = tonumber(string.match(stored or '', '^(%d+) ') or nil) or 0, per_us = 0 }
      t.buckets[key] = bucket
    end
  end
  if not bucket then
    return nil
  end
  local per_us = math.max(of.per_ms, 1) * 1000
  local step = per_us / math.max(of.count, 1)
  bucket.per_us = math.max(bucket.per_us, per_us)
  -- No promise reaches further ahead than a whole period: a clock that was set back cannot hold runs up for longer.
  local tat = math.max(math.min(bucket.tat, t.now_us + per_us), t.now_us)
  local ahead, rank = place_in(line, id)
  line.bucket, line.step, line.per_us = bucket, step, per_us
  if tat + (ahead + 1) * step - per_us <= t.now_us then
    bucket.tat = tat + step
    if rank then
      line.left[#line.left + 1], line.out[#line.out + 1] = rank, id
    end
    return false
  end
  bucket.tat = tat
  if not rank then
    line.into[#line.into + 1] = id
  end
  local again = math.max(AGAIN_MIN_US, line.length * AGAIN_EACH_US) -- in case those in front of it go without a start
  return true, math.ceil(math.min(tat + (ahead + 1) * step - per_us, t.now_us + again) / 1000)
end

-- Write who came into the lines and who left, and let the first of each come back when they may start.
local function write_lines()
  for key, line in pairs(t.lines) do
    if #line.out > 0 then
      redis.call('ZREM', key, unpack(line.out))
    end
    if #line.into > 0 then
      local last, joined = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2], {}
      local first = math.max(t.now_us, (tonumber(last or nil) or 0) + 1)
      for n, id in ipairs(line.into) do
        joined[2 * n - 1], joined[2 * n] = whole(first + n), id
      end
      redis.call('ZADD', key, 'NX', unpack(joined))
      redis.call('PEXPIRE', key, LINE_MS)
    end
    local dues, heads = {}, line.bucket and redis.call('ZRANGE', key, 0, STEP_MIN - 1) or {}
    for n, id in ipairs(heads) do
      local due_us = math.max(line.bucket.tat, t.now_us) + n * line.step - line.per_us
      dues[2 * n - 1], dues[2 * n] = whole(math.ceil(math.max(due_us, t.now_us) / 1000)), id
    end
    if #dues > 0 then
      read('ZADD', keys.later(line.queue), 'XX', 'LT', unpack(dues))
      t.due_at[line.queue] = nil
    end
  end
  t.lines = {}
end

-- What a run's limits say: 'go', 'full', 'over' if a newer one takes its place, or 'early' with its time; nil if a
-- foreign key is in the way.
local function judge(queue, id, of, is_rated)
  local me = queue .. ' ' .. id
  if of.is_replacing and of.max == 1 then
    local newest = read('HGET', keys.limit_newest, of.concurrency)
    local its_queue, its_id = string.match(newest or '', '^(%S+) (%S+)$')
    if its_id and newest ~= me and redis.pcall('HEXISTS', keys.data(its_queue), its_id) == 1 then
      return 'over'
    end
  end
  if of.concurrency and of.max then
    local is_free = has_slot(of, me)
    if not is_free then
      return is_free == false and 'full' or nil
    end
  end
  if of.rate and is_rated then
    local early, due = is_early(of, queue, id)
    if early or early == nil then
      return early and 'early' or nil, due
    end
  end
  if of.concurrency and of.max then
    t.slots[of.slots] = t.slots[of.slots] + 1
    t.admitted[me] = of.slots
  end
  return 'go'
end

-- Decide about ids from the head of a list, until `most` may go, without a write; nil if a foreign key is in the way.
local function decide(open, ids, skip, most, is_suspect)
  local queue = open.name
  local data = read('HMGET', keys.data(queue), unpack(ids))
  open.charged = open.charged or (data and read('HLEN', keys.att(queue)))
  local att = open.charged ~= 0 and open.charged and read('HMGET', keys.att(queue), unpack(ids)) or {}
  if not data or not open.charged or not read('HLEN', keys.run(queue)) then
    return nil
  end
  local plan = { tokens = {}, given = {}, gone = {}, early = {}, waiting = {}, older = {}, yield = {}, blocked = {},
    over = {}, spared = {}, known = {}, seen = 0 }
  for n, id in ipairs(ids) do
    if #plan.given == most or t.keys <= 0 then
      break
    end
    plan.seen = n
    local header = data[n] and not skip[n] and header_of(data[n])
    local verdict, due = 'go', nil
    if header then
      local of = limits_in(header)
      verdict, due = judge(queue, id, of, not is_suspect) -- a suspect has had its start
      if not verdict then
        return nil
      elseif verdict == 'full' then
        local kept = of.is_replacing and att[n] and plan.older or plan.waiting -- tried again: no newer than who runs
        kept[of.concurrency] = kept[of.concurrency] or {}
        table.insert(kept[of.concurrency], id)
        local line = of.rate and line_of(queue, of.rate)
        if line then
          line.out[#line.out + 1] = id -- nobody waits for a rate behind one that waits for a slot
        end
        plan.is_held_up = true
        plan.yield[of.concurrency] = of.is_replacing and not att[n] or plan.yield[of.concurrency]
      elseif verdict == 'over' then
        plan.over[#plan.over + 1] = n
      elseif verdict == 'early' then
        plan.early[#plan.early + 1] = whole(due)
        plan.early[#plan.early + 1] = id
        plan.spared[#plan.spared + 1] = of.concurrency
        if of.is_replacing and of.max == 1 and not att[n] then
          plan.known[#plan.known + 1] = id -- charged with nothing: when it comes back it is no newer than now
          plan.known[#plan.known + 1] = '0,0,0'
        end
      end
    end
    if not data[n] and not skip[n] then
      plan.gone[#plan.gone + 1] = id
    elseif verdict == 'go' and not skip[n] then
      local token = t.first_token
      if att[n] then
        token = t.session .. '|' .. whole(charges(att[n]) + 1) .. '|' .. t.at
      end
      plan.tokens[#plan.tokens + 1] = id
      plan.tokens[#plan.tokens + 1] = token
      plan.given[#plan.given + 1] = n
    end
  end
  plan.data, plan.att = data, att
  if plan.is_held_up and not read('HLEN', keys.blocked(queue)) then
    return nil
  end
  return plan
end

-- What a run that was taken holds, and where those wait that were not.
local function write_limits(queue, list, plan, is_suspect)
  local by_key = {}
  for me, key in pairs(t.admitted) do
    by_key[key] = by_key[key] or {}
    table.insert(by_key[key], me)
  end
  for key, holders in pairs(by_key) do
    redis.call('SADD', key, unpack(holders))
  end
  for key, bucket in pairs(t.buckets) do
    redis.call('SET', key, whole(bucket.tat) .. ' 0', 'PX', -- 0: read by versions that kept their line there
      whole(math.max(math.ceil((bucket.tat - t.now_us + bucket.per_us) / 1000), 1000)))
  end
  t.admitted, t.buckets = {}, {}
  for _, which in ipairs({ 'waiting', 'older' }) do
    for key, ids in pairs(plan[which]) do
      local is_told = read('SADD', keys.limit_queues(key), queue)
      if is_suspect then
        redis.call('RPUSH', list, unpack(ids)) -- it keeps its lane, at the end of it
      elseif is_told and read(which == 'older' and 'LPUSH' or 'RPUSH', keys.wait(queue, key), unpack(ids)) then
        for _, id in ipairs(ids) do
          plan.blocked[#plan.blocked + 1] = id
          plan.blocked[#plan.blocked + 1] = key
        end
      else
        redis.call('RPUSH', list, unpack(ids)) -- a foreign key is in the way
      end
    end
  end
  if #plan.blocked > 0 then
    redis.call('HSET', keys.blocked(queue), unpack(plan.blocked))
  end
  for key, is_newer in pairs(plan.yield) do
    if is_newer then
      ask_to_yield(key, redis.call('LLEN', keys.wait(queue, key)))
    end
  end
  if #plan.early > 0 then
    redis.call('ZADD', keys.later(queue), unpack(plan.early))
    if #plan.known > 0 then
      redis.call('HSET', keys.att(queue), unpack(plan.known))
    end
    t.due_at[queue] = nil
    for _, key in ipairs(plan.spared) do
      tell_waiting(key) -- it may have been brought back for a slot that it does not take now
    end
  end
  write_lines()
end

-- Take up to `limit` runs from the head of the list of a class; what is gone, or held up by a limit, is put aside and not
-- counted. Returns how many were taken.
local function take(open, class, list, limit)
  local queue, taken, step, is_suspect = open.name, 0, limit, class == 's'
  while taken < limit and t.looks > 0 and t.keys > 0 do
    local ids = read('LRANGE', list, 0, math.min(step, t.looks) - 1) or {}
    local skip = stale_drop(queue, list, ids)
    local plan = skip and #ids > 0 and decide(open, ids, skip, limit - taken, is_suspect)
    for n = plan and plan.seen + 1 or 1, skip and #ids or 0 do -- what stays in the list
      if skip[n] then
        stale_add(queue, list, ids[n])
      end
    end
    if not plan then
      t.slots, t.buckets, t.lines, t.admitted = {}, {}, {}, {}
      open.lens[class] = 0
      return taken
    end
    if #plan.tokens > 0 then
      redis.call('HSET', keys.run(queue), unpack(plan.tokens))
    end
    write_limits(queue, list, plan, is_suspect)
    redis.call('LTRIM', list, plan.seen, -1)
    for _, n in ipairs(plan.given) do
      t.give(queue, ids[n], plan.data[n], plan.att[n], is_suspect)
    end
    for _, id in ipairs(plan.gone) do
      t.count(queue, 'cancelled')
      forget(queue, '', id)
    end
    for _, n in ipairs(plan.over) do
      supersede(queue, ids[n], plan.data[n])
    end
    taken, t.looks = taken + #plan.given, t.looks - plan.seen
    open.room, open.lens[class] = open.room - #plan.given, math.max(open.lens[class] - plan.seen, 0)
    if is_suspect and plan.is_held_up then
      open.lens[class] = 0
    end
    if open.lens[class] == 0 then
      return taken
    end
    step = math.max(limit - taken, STEP_MIN)
  end
  return taken
end

-- How many slots each class gets: its share by the wheel, and what the others cannot use.
local function shares()
  local share, left = {}, t.want
  for class = 0, 2 do
    share[class] = math.floor(t.want / 10) * WEIGHTS[class]
  end
  for n = 0, t.want % 10 - 1 do
    local class = WHEEL[(t.wheel + n) % 10 + 1]
    share[class] = share[class] + 1
  end
  local there = {}
  for class = 0, 2 do
    there[class] = 0
    for _, open in ipairs(t.open) do
      there[class] = there[class] + math.min(open.lens[class], open.room)
    end
    share[class] = math.min(share[class], there[class])
    left = left - share[class]
  end
  for class = 0, 2 do
    local more = math.min(left, there[class] - share[class])
    share[class], left = share[class] + more, left - more
  end
  return share
end

-- Take up to `most` runs of a class, from the queues in their order.
local function take_class(class, most)
  local taken = 0
  for _, open in ipairs(t.open) do
    local limit = math.min(most - taken, open.room)
    if limit > 0 and open.lens[class] > 0 then
      taken = taken + take(open, class, ready(open.name, t.letter .. class), limit)
    end
  end
  return taken
end

local function take_suspect()
  for _, open in ipairs(t.open) do
    local list = keys.suspect(open.name, t.letter)
    open.lens['s'] = open.room > 0 and read('LLEN', list) or 0
    if open.lens['s'] > 0 and take(open, 's', list, 1) > 0 then
      return true
    end
  end
  return false
end

-- Give the worker what it asks for; return the first error of a foreign key, if there was one.
local function fetch(turn)
  t = turn
  t.slots, t.buckets, t.lines, t.admitted, t.healed, t.heals, t.looks = {}, {}, {}, {}, {}, 0, t.want + LOOK_MAX
  t.keys, t.at = 3 * t.want + KEYS_MAX, whole(t.now)
  t.first_token = t.session .. '|1|' .. t.at
  for _, open in ipairs(t.open) do
    open.lens, open.had_room = {}, open.room > 0
  end
  local is_alone = t.want > 0 and t.want_suspect and take_suspect()
  for _, open in ipairs(t.open) do
    wake(open.name)
    for class = 0, 2 do
      open.lens[class] = open.had_room and read('LLEN', ready(open.name, t.letter .. class)) or 0
    end
  end
  if not is_alone then
    local share, left = shares(), t.want
    for class = 0, 2 do
      left = left - take_class(class, share[class])
    end
    for class = 0, 2 do -- in place of those that were gone or held up
      left = left - take_class(class, left)
    end
  end
  for _, open in ipairs(t.open) do -- work is left: wake another worker, unless one is being woken
    if open.lens[0] + open.lens[1] + open.lens[2] > 0 and read('LLEN', keys.bell(open.name, t.letter)) == 0 then
      ring(open.name, t.letter, 1)
    end
  end
  return failed
end
