-- Library of the turn: what is ready is given to a worker.
--
-- High, normal and low have 6, 3 and 1 of 10 slots while all have work; what one cannot use goes to the others, highest
-- first. The wheel below is smooth: the slots of one class are as far apart as can be, and no ten in a row lack any.
-- Includes  waiting
--           rate_line
local KEYS_MAX = 40
local BYTES_MAX = 1048576 -- of one reply, and the run that goes beyond: no caller waits for any size, and a turn is repeated as it was
local WHEEL = { 0, 1, 0, 0, 1, 0, 2, 0, 1, 0 }
local WEIGHTS = { [0] = 6, 3, 1 }

-- What a run's limits say: 'go', 'full' with its place in the line of its rate, 'over' if a newer one takes its place, or 'early'
-- with its time; nil if a foreign key is in the way.
local function judge(open, id, of, is_retry, is_older, is_rated, came_us, is_known)
  local queue = open.name
  local me = queue .. ' ' .. id
  if of.is_replacing and of.max == 1 then
    local newest = read('HGET', keys.limit_newest, of.concurrency)
    newest = newest and ours('HDEL', keys.limit_newest, { of.concurrency, newest }, 2)[2] -- many may be judged by the same
    local its_queue, its_id = string.match(newest or '', '^(%S+) (%S+)$')
    if its_id and newest ~= me and redis.pcall('HEXISTS', keys.data(its_queue), its_id) == 1 then return 'over' end
  end
  if of.concurrency and of.max then
    local place = not (is_known or of.is_replacing) and of.rate and read('ZSCORE', keys.rate(queue, t.letter, of.rate), id)
    local is_free = has_slot(open, of, me, not (is_older or of.is_replacing or place))
    if not is_free then return is_free == false and 'full' or nil, place end
  end
  if of.rate and is_rated then
    local early, due = is_early(of, queue, id, is_retry, came_us)
    if early and of.concurrency then note_early(queue, of.concurrency) end
    if early or early == nil then return early and 'early' or nil, due end
  end
  if of.concurrency and of.max then
    t.slots[of.slots] = t.slots[of.slots] + 1
    t.admitted[me] = of.slots
    leave_slot_line(queue, of.concurrency)
  end
  return 'go'
end

-- Whether an acknowledgement can name `id`: what Tenure makes runs of. Any other goes as a run does that was cancelled.
local ID, ID_MAX = '^[!-+.-{}~-]+$', 255
local function is_id(id)
  return #id <= ID_MAX and string.find(id, ID) ~= nil
end

-- Decide about ids from the head of a list, until `most` may go, without a write; nil if a foreign key is in the way.
local function decide(open, ids, skip, most, is_suspect)
  local queue = open.name
  local data = read('HMGET', keys.data(queue), unpack(ids))
  open.charged = open.charged or (data and read('HLEN', keys.att(queue)))
  local att = open.charged ~= 0 and open.charged and read('HMGET', keys.att(queue), unpack(ids)) or {}
  if not data or not open.charged or not read('HLEN', keys.run(queue)) then return nil end
  local plan = { tokens = {}, given = {}, gone = {}, early = {}, waiting = {}, older = {}, aged = {}, came = {}, yield = {},
    blocked = {}, over = {}, spared = {}, known = {}, seen = 0 }
  local are_ids = string.find(table.concat(ids), ID) ~= nil -- as mostly: one look at all is cheaper
  for n, id in ipairs(ids) do
    if #plan.given == most or t.keys <= 0 or t.bytes <= 0 then break end
    plan.seen = n
    local is_run = data[n] and id ~= '' and (are_ids and #id <= ID_MAX or is_id(id))
    local header = is_run and not skip[n] and header_of(data[n])
    local verdict, due = 'go', nil
    if header then
      local of = limits_in(header)
      local is_retry = charges(att[n]) > 0 and not has_asked(queue, id) -- it is older than what waits
      local came_us = came_at(att[n])
      local is_known = is_suspect or is_retry or t.woken[queue .. ' ' .. id] or came_us
      local is_older = is_known or has_place(att[n]) or of.is_replacing and att[n] -- tried again: no newer than who runs
      verdict, due = judge(open, id, of, is_retry, is_older, not is_suspect, came_us, is_known) -- a suspect has had its start
      if not verdict then
        return nil
      elseif verdict == 'full' then
        if due then -- since when it is in the line of its rate, which it leaves
          came_us = math.max(math.min(tonumber(due), t.now_us), 0)
          if not att[n] or att[n] == WAITED then
            plan.known[#plan.known + 1] = id -- it has its age from here on, wherever it waits
            plan.known[#plan.known + 1] = WAITED .. ',' .. whole(came_us)
          end
        end
        plan.came[id] = came_us
        local kept = came_us and plan.aged or is_older and plan.older or plan.waiting
        kept[of.concurrency] = kept[of.concurrency] or {}
        table.insert(kept[of.concurrency], id)
        local line = of.rate and line_of(queue, of.rate)
        if line then
          line.out[#line.out + 1] = id -- nobody waits for a rate behind one that waits for a slot
        end
        plan.is_held_up = true
        if not is_suspect then
          local wait = keys.wait(queue, of.concurrency)
          t.newest[wait], t.emptied[wait] = t.newest[wait] or of.max, nil
        end
        plan.yield[of.concurrency] = of.is_replacing and not att[n] and (of.max > 1 or is_newest(queue, id, of))
          or plan.yield[of.concurrency]
      elseif verdict == 'over' then
        plan.over[#plan.over + 1] = n
      elseif verdict == 'early' then
        plan.early[#plan.early + 1] = whole(due)
        plan.early[#plan.early + 1] = id
        plan.spared[#plan.spared + 1] = of.concurrency
        if of.is_replacing and of.max == 1 and not att[n] then
          plan.known[#plan.known + 1] = id -- when it comes back it is no newer than now
          plan.known[#plan.known + 1] = WAITED
        end
      end
    end
    if not skip[n] and not is_run then
      plan.gone[#plan.gone + 1] = id
    elseif verdict == 'go' and not skip[n] then
      local token = t.first_token
      if att[n] then
        token = t.session .. '|' .. whole(charges(att[n]) + 1) .. '|' .. t.at
      end
      plan.tokens[#plan.tokens + 1] = id
      plan.tokens[#plan.tokens + 1] = token
      plan.given[#plan.given + 1] = n
      t.bytes = t.bytes - #data[n]
    end
  end
  plan.data, plan.att = data, att
  -- What the runs of this plan write: read here, since an error behind the first write would hide what was taken elsewhere.
  if (plan.is_held_up or #plan.over > 0) and not read('HLEN', keys.blocked(queue)) then return nil end
  if #plan.early > 0 and not read('ZCARD', keys.later(queue)) then return nil end
  if #plan.gone + #plan.over > 0 and not read('HLEN', keys.err(queue)) then return nil end
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
  for _, which in ipairs({ 'older', 'waiting', 'aged' }) do
    for key, ids in pairs(plan[which]) do
      local is_told = read('SADD', keys.limit_queues(key), queue)
      if is_suspect then
        redis.call('RPUSH', list, unpack(ids)) -- it keeps its lane, at the end of it
      elseif is_told and (which == 'older' and wait_in_front(keys.wait(queue, key), ids)
        or which == 'aged' and wait_by_age(queue, keys.wait(queue, key), ids, plan.came)
        or which == 'waiting' and read('RPUSH', keys.wait(queue, key), unpack(ids))) then
        join_slot_line(queue, key)
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
      ask_to_yield(key, read('LLEN', keys.wait(queue, key)) or 0)
    end
  end
  if #plan.known > 0 then
    redis.call('HSET', keys.att(queue), unpack(plan.known))
  end
  if #plan.early > 0 then
    redis.call('ZADD', keys.later(queue), unpack(plan.early))
    t.due_at[queue] = nil
    for _, key in ipairs(plan.spared) do
      tell_waiting(key, queue) -- it may have been brought back for a slot that it does not take now
    end
  end
  if next(t.lines) then write_lines() end
end

-- Cut what is longer than any of ours: each turn that meets it again would read it whole.
local function shorten(queue, ids, data)
  for n, id in ipairs(ids) do
    if #(data[n] or '') > READ_MAX then
      redis.call('HSET', keys.data(queue), id, readable(data[n]))
    end
  end
end

-- Take up to `limit` runs from the head of the list of a class; what is gone, or held up by a limit, is put aside and not
-- counted. Returns how many were taken.
local function take(open, class, list, limit)
  local queue, taken, step, is_suspect = open.name, 0, limit, class == 's'
  while taken < limit and t.looks > 0 and t.keys > 0 and t.bytes > 0 do
    local ids = distinct(read('LRANGE', list, 0, math.min(step, t.looks) - 1) or {})
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
    shorten(queue, ids, plan.data)
    write_limits(queue, list, plan, is_suspect)
    redis.call('LTRIM', list, plan.seen, -1)
    if t.brought[list] then
      t.brought[list].seen = t.brought[list].seen + plan.seen
    end
    for _, n in ipairs(plan.given) do
      t.give(queue, ids[n], plan.data[n], plan.att[n], is_suspect)
    end
    for _, id in ipairs(plan.gone) do
      t.count(queue, 'cancelled')
      redis.call('HDEL', keys.data(queue), id)
      forget(queue, nil, id)
    end
    for _, n in ipairs(plan.over) do
      supersede(queue, ids[n], plan.data[n])
    end
    taken, t.looks = taken + #plan.given, t.looks - plan.seen
    open.room, open.lens[class] = open.room - #plan.given, math.max(open.lens[class] - plan.seen, 0)
    if is_suspect and plan.is_held_up then
      open.lens[class] = 0
    end
    if open.lens[class] == 0 then return taken end
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
    if open.lens['s'] > 0 and take(open, 's', list, 1) > 0 then return true end
  end
  return false
end

-- Give the worker what it asks for; return the first foreign key with its error, if there was one.
local function fetch(turn)
  t = turn
  t.slots, t.buckets, t.lines, t.admitted, t.healed, t.heals, t.looks = {}, {}, {}, {}, {}, 0, t.want + LOOK_MAX
  t.keys, t.bytes, t.at = 3 * t.want + KEYS_MAX, BYTES_MAX, whole(t.now)
  t.first_token, t.woken, t.brought, t.fronts = t.session .. '|1|' .. t.at, {}, {}, {}
  t.newest, t.emptied, t.ahead, t.kept = {}, {}, {}, {}
  for _, open in ipairs(t.open) do
    open.lens, open.had_room = {}, open.room > 0
  end
  local is_alone = t.want > 0 and t.want_suspect and take_suspect()
  for _, open in ipairs(t.open) do
    wake(open)
    for class = 0, 2 do
      open.lens[class] = open.had_room and read('LLEN', ready(open.name, t.letter .. class)) or 0
    end
  end
  if not is_alone then
    local share, left = shares(), t.want
    t.bytes = 0
    for class = 0, 2 do
      t.bytes = t.bytes + BYTES_MAX * WEIGHTS[class] / 10 -- its share, as of the slots, and what those before it left
      left = left - take_class(class, share[class])
    end
    for class = 0, 2 do -- in place of those that were gone or held up
      left = left - take_class(class, left)
    end
  end
  if next(t.brought) then take_back() end
  for _, open in ipairs(t.open) do -- work is left: wake another worker, unless one is being woken
    local is_left = open.lens[0] + open.lens[1] + open.lens[2] > 0 or open.has_more and open.had_room and not failed
    if is_left and read('LLEN', keys.bell(open.name, t.letter)) == 0 then
      ring(open.name, t.letter, 1)
    end
  end
  return failed
end
