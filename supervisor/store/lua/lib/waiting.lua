-- Library of the turn: runs that wait, for their time or for a slot of their concurrency key; and how they become ready.
-- Includes  slots
local PROMOTE_MAX, PAGE, AGAIN_MS, AGAINS_MAX, AGE_LENGTH = 64, 50, 1000, 60, #'0,0,0,' + 16

-- Since when a run of a concurrency key and a rate waits for either, as its charge says from when it first waited for the slot after
-- the rate: its age in the lists of both. Nil for any other; 0 where the clock was set back since.
local function came_at(att)
  local us = #(att or '') <= AGE_LENGTH and tonumber(string.match(att or '', '^0,0,0,(%d+)$') or nil)
  return us and (us <= t.now_us and us or 0) or nil
end

-- Write that a run has its place, unless its age says so.
local function note_place(queue, id)
  local att = short(keys.att(queue), id)
  if not came_at(att) then
    local attempts, crashes, interrupts = charges(att)
    local is_charged = attempts + crashes + interrupts > 0
    redis.call('HSET', keys.att(queue), id, is_charged and string.format('0%.0f,%.0f,%.0f', attempts, crashes, interrupts) or WAITED)
  end
end

-- Put ids in front of a list, the first one first.
local function push_front(list, ids)
  local turned = {}
  for n = #ids, 1, -1 do
    turned[#turned + 1] = ids[n]
  end
  redis.call('LPUSH', list, unpack(turned))
end

-- What is at the head of a list down to the last that was brought for a slot and has not begun yet; between are but those that were
-- tried before, or are gone.
local function placed(queue, list)
  local found, last, want = {}, 0, 1 -- mostly there is none
  repeat
    local page = redis.call('LRANGE', list, #found, #found + want - 1)
    local ids = distinct(page)
    local is_more = #ids == want
    local att = #ids > 0 and redis.call('HMGET', keys.att(queue), unpack(ids)) or {}
    for n, id in ipairs(ids) do
      local is_ours = #id + #(att[n] or '') <= MEMBER_MAX
      if not is_ours or not att[n] and redis.call('HEXISTS', keys.data(queue), id) == 1 then
        is_more = false
        break
      end
      found[#found + 1] = id
      last = (has_place(att[n]) or came_at(att[n])) and #found or last
    end
    want = math.min(PAGE, LOOK_MAX - #found)
  until not is_more or want == 0
  return { unpack(found, 1, last) }
end

-- Put ids that became ready into their lists: those of `heads` in front.
local function make_ready(heads, tails)
  for list, ids in pairs(heads) do
    push_front(list, ids)
  end
  for list, ids in pairs(tails) do
    redis.call('RPUSH', list, unpack(ids))
  end
end

local function add(lists, list, id)
  lists[list] = lists[list] or {}
  table.insert(lists[list], id)
end

-- Put ids among the first of a list, each behind those that are as old. `ages` are those of `first`, from which `long` ids were
-- left out: they go.
local function put_by_age(list, first, ages, long, ids, came)
  local last = long > 0 and #first or 0
  for _, id in ipairs(ids) do
    local place = 1
    for n, age in ipairs(ages) do
      place = age <= came[id] and n + 1 or place
    end
    table.insert(first, place, id)
    table.insert(ages, place, came[id])
    last = math.max(last + 1, place)
  end
  redis.call('LTRIM', list, last - #ids + long, -1)
  push_front(list, { unpack(first, 1, last) })
end

-- Put runs that a rate held up in front of their list, but behind those of their line that are older and have not begun yet: one
-- that came due later would begin before them for as long as all workers are busy. False where more of these are than one look
-- finds.
local function put_in_front(of)
  local first, ages, long, seen, is_known = {}, {}, 0, 0, false
  repeat
    local page = redis.call('LRANGE', of.list, seen, seen + PAGE - 1)
    local scores = #page > 0 and read('ZMSCORE', of.line, unpack(page)) or {}
    seen, is_known = seen + #page, false
    for n, id in ipairs(page) do
      local age = #id <= MEMBER_MAX and tonumber(scores[n] or nil)
      is_known = is_known or age
      if #id > MEMBER_MAX then
        long = long + 1
      else
        first[#first + 1], ages[#ages + 1] = id, age or math.huge
      end
    end
  until #page < PAGE or seen >= LOOK_MAX
  if is_known and seen >= LOOK_MAX then return false end
  put_by_age(of.list, first, ages, long, of, of.came)
  return true
end

-- Promote what is due.
-- Returns when the next one is due: false for none, or where a foreign key is in the way; nil where that is not known.
local function promote(queue, now)
  local later = keys.later(queue)
  local head = read('ZRANGE', later, 0, 0, 'WITHSCORES')
  if head and is_taken_out(queue, head[1]) then return nil end
  local first = head and tonumber(head[2] or nil)
  if not first or first > now then return first or false end
  local due = redis.call('ZRANGEBYSCORE', later, '-inf', whole(now), 'LIMIT', 0, PROMOTE_MAX)
  local data, att = read('HMGET', keys.data(queue), unpack(due)), read('HMGET', keys.att(queue), unpack(due))
  if not data or not att then return false end
  local heads, tails, held, newer, gone, bells = {}, {}, {}, {}, {}, { a = 0, s = 0 }
  for n, id in ipairs(due) do
    if data[n] then
      local list, is_older, line, came = lane_of(queue, id, data[n], att[n])
      local kind = string.sub(head_of(data[n]), 1, 1)
      if came then
        held[list .. line] = held[list .. line] or { list = list, line = line, kind = kind, came = {} }
        table.insert(held[list .. line], id)
        held[list .. line].came[id] = came
      else
        add(is_older and heads or tails, list, id)
        bells[kind] = bells[kind] + 1
      end
      if header_of(data[n]) and not att[n] then
        newer[#newer + 1] = n
      end
    else
      gone[#gone + 1] = id
    end
  end
  for _, lists in ipairs({ heads, tails }) do
    for list in pairs(lists) do
      if not read('LLEN', list) then return false end
    end
  end
  for _, of in pairs(held) do
    if not read('LLEN', of.list) then return false end
  end
  if #gone > 0 and not read('HLEN', keys.err(queue)) then return false end
  for _, id in ipairs(gone) do
    forget(queue, nil, id)
  end
  for _, n in ipairs(newer) do
    replace_older(queue, due[n], data[n])
  end
  make_ready(heads, tails)
  redis.call('ZREMRANGEBYRANK', later, 0, #due - 1) -- just these: the earliest come first
  for _, of in pairs(held) do
    local is_put = put_in_front(of)
    bells[of.kind] = bells[of.kind] + (is_put and #of or 0)
    for _, id in ipairs(is_put and {} or of) do -- the later the more are in front of it: of a paused queue all come again
      local looks = math.ceil((read('ZRANK', of.line, id) or 0) / LOOK_MAX)
      redis.call('ZADD', later, whole(now + AGAIN_MS * math.max(1, math.min(looks, AGAINS_MAX))), id)
    end
  end
  ring(queue, 'a', math.min(bells.a, 4))
  ring(queue, 's', math.min(bells.s, 4))
  return nil
end

-- Whether behind the first in a list of those that wait for a slot there are `count` more that do. By pages: a limit may be
-- 100,000, and no more than some 8000 ids fit one command.
local function are_behind(queue, wait, key, count)
  local left, from, live = redis.call('LLEN', wait) - 1, 1, 0
  while live < count and live + left >= count and from <= count + LOOK_MAX do
    local ids = redis.call('LRANGE', wait, from, from + LOOK_MAX - 1)
    cut_repeated(keys.blocked(queue), ids)
    for _, blocked in ipairs(redis.call('HMGET', keys.blocked(queue), unpack(ids))) do
      live = live + (blocked == key and 1 or 0)
    end
    left, from = left - #ids, from + #ids
  end
  return live >= count
end

-- Of the runs that wait for a slot and replace others, only the newest are still wanted.
local SUPERSEDED_MAX = 100
local function supersede(queue, id, data)
  redis.call('HDEL', keys.blocked(queue), id)
  erase(queue, id)
  end_limits(queue, id, 'replaced')
  live_remove(schedule_of(id, data), id, 'replaced')
  history_add(queue, t.history, id, 'replaced', job_of(data), 'a newer run took its place before it began', t.now)
  t.count(queue, 'replaced')
end

-- Runs that wait for a slot of a key come back to the head of their lists, behind those that came before them and have not begun,
-- as many as there is room for, and as this turn can take. Each is judged again when it is taken.
local function wake(open)
  local queue, most = open.name, math.min(t.want, open.room)
  local keys = ours('SREM', keys.woken(queue), read('SRANDMEMBER', keys.woken(queue), WOKEN_MAX) or {})
  if #keys == 0 then return end
  for _, hash in ipairs({ keys.blocked(queue), keys.data(queue), keys.att(queue), keys.err(queue) }) do
    if not read('HLEN', hash) then return end
  end
  local heads, rung, looked, superseded = {}, {}, 0, 0
  for _, key in ipairs(keys) do
    local wait, held, left = keys.wait(queue, key), read('SCARD', keys.limit_slots(key)), most
    local newest = newest_max(queue, key)
    while held and looked < 2 * STEP_MIN and read('LLEN', wait) do
      looked = looked + 1
      local id = redis.call('LINDEX', wait, 0)
      if not id then
        t.emptied[wait] = true
        read('SREM', keys.limit_queues(key), queue)
        if not tell_waiting(key, nil, held) then -- else nobody may serve those that were told: again in the next turn
          redis.call('SREM', keys.woken(queue), key)
        end
        break
      end
      local is_waiting = #id <= MEMBER_MAX and short(keys.blocked(queue), id) == key
      local data = is_waiting and redis.call('HGET', keys.data(queue), id)
      local kind = data and string.sub(head_of(data), 1, 1)
      local of = data and limits_in(header_of(data) or '')
      local max = of and (newest ~= 0 and newest or of.max)
      local is_over = max and of.is_replacing and superseded < SUPERSEDED_MAX and are_behind(queue, wait, key, max)
      if is_over then
        looked, superseded = looked - 1 + math.floor(max / 1000), superseded + 1 -- it took so many times as long
        redis.call('LPOP', wait)
        supersede(queue, id, data)
      elseif max and not is_its_turn(queue, key, held, max) then
        if kind == t.letter and left > 0 then
          join_slot_line(queue, key)
        end
        if held < max then break end
        if of.is_replacing and (max > 1 or is_newest(queue, id, of)) then
          ask_to_yield(key, redis.call('LLEN', wait))
        end
        redis.call('SREM', keys.woken(queue), key) -- the end of a holder will tell again
        break
      elseif data and not read('LLEN', ready(queue, data)) then
        break
      elseif kind == t.letter and left <= 0 then
        open.has_more = true
        break
      else
        redis.call('LPOP', wait)
        if data then
          redis.call('HDEL', keys.blocked(queue), id)
          t.woken[queue .. ' ' .. id] = key
          if kind ~= t.letter then
            note_place(queue, id) -- a turn of the other kind must know that it has its place
          end
          add(heads, ready(queue, data), id)
          rung[kind] = true
          held, left = held + 1, left - (kind == t.letter and 1 or 0)
        elseif is_waiting then
          t.count(queue, 'cancelled')
          forget(queue, nil, id)
        end
      end
    end
    told[key] = nil
  end
  local before = {}
  for list, ids in pairs(heads) do
    before[list] = placed(queue, list)
    redis.call('LTRIM', list, #before[list], -1)
    push_front(list, ids)
    if #before[list] > 0 then push_front(list, before[list]) end
  end
  for class = 0, 2 do
    local list = ready(queue, t.letter .. class)
    t.brought[list] = heads[list] and { queue = queue, ids = heads[list], seen = -#before[list] }
  end
  rung[t.letter] = looked >= 2 * STEP_MIN or nil -- more than one turn can look at
  for kind in pairs(rung) do
    ring(queue, kind, 1)
  end
end

-- Put runs that are older than those that wait for a slot in front of them, behind those that this turn put there before.
local function wait_in_front(wait, ids)
  local front = t.fronts[wait] or {}
  if not read('LTRIM', wait, #front, -1) then return nil end
  for _, id in ipairs(ids) do
    front[#front + 1] = id
  end
  t.fronts[wait] = front
  push_front(wait, front)
  return true
end

-- Put runs from the line of a rate among those that wait for a slot, behind those that are as old. Of these those are known that
-- came from the line too, or failed; whoever waits since its first turn is newer.
local function wait_by_age(queue, wait, ids, came)
  local first, seen, long = {}, 0, 0
  repeat -- by pages: an id may have any length, and those that are none of ours go, or each turn would read them again
    local most = math.min(math.max(2 * seen, STEP_MIN), LOOK_MAX)
    local page = read('LRANGE', wait, seen, most - 1)
    if not page then return nil end
    for _, id in ipairs(page) do
      long, first[#first + 1] = long + (#id > MEMBER_MAX and 1 or 0), #id <= MEMBER_MAX and id or nil
    end
    seen = seen + #page
  until seen < most or long > 0 or seen == LOOK_MAX
  cut_repeated(keys.att(queue), first)
  local att, ages, is_retry = #first > 0 and read('HMGET', keys.att(queue), unpack(first)) or {}, {}, true
  for n = 1, #first do
    if #(att[n] or '') > MEMBER_MAX then
      redis.call('HDEL', keys.att(queue), first[n]) -- it charges nothing, and each turn would read it again
    end
    is_retry = is_retry and charges(att[n]) > 0
    ages[n] = is_retry and 0 or came_at(att[n]) or math.huge
  end
  put_by_age(wait, first, ages, long, ids, came)
  t.fronts[wait] = nil
  return true
end

-- Of the runs that were brought for a slot those that this turn did not look at, which are still where they were put, wait for it
-- again: another turn would not know that they came before what it brings.
local function take_back()
  for list, of in pairs(t.brought) do
    local waits = {}
    for n = math.max(of.seen, 0) + 1, #of.ids do
      local key = t.woken[of.queue .. ' ' .. of.ids[n]]
      redis.call('HSET', keys.blocked(of.queue), of.ids[n], key)
      add(waits, key, of.ids[n])
    end
    for key, ids in pairs(waits) do
      wait_in_front(keys.wait(of.queue, key), ids)
      redis.call('SADD', keys.woken(of.queue), key)
      read('SADD', keys.limit_queues(key), of.queue)
    end
    local before = of.seen < 0 and redis.call('LRANGE', list, 0, -of.seen - 1) or {}
    redis.call('LTRIM', list, math.max(#of.ids - of.seen, 0), -1)
    if #before > 0 then push_front(list, before) end
  end
end
