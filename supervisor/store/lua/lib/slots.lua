-- Library of the turn: which run may take a slot of its concurrency key.
-- Includes  run
local LOOK_MAX, STEP_MIN, WOKEN_MAX = 200, 20, 8

-- Everything below is of one turn `t`: open queues, session, letter, want, wheel, now, now_us, want_suspect, give, count,
-- due_at.
local t

-- A foreign key in one queue must not hide what was taken from another, or stop what was acknowledged from being recorded:
-- its error is told at the end.
local failed
local function read(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply['err'] then
    failed = failed or select(2, ...) .. ': ' .. tostring(reply['err'])
    return nil
  end
  return reply
end

-- How many may hold a slot of a key at once, by the newest of those of a queue that wait for one, as of when the turn began: by
-- their own number, those from before a deploy that raised it would wait for ever. 0 where it is not known, nil where none waits.
local function newest_max(queue, key)
  local wait = keys.wait(queue, key)
  if t.newest[wait] == nil then
    local ids = read('LRANGE', wait, -STEP_MIN, -1) or {}
    local blocked = #ids > 0 and read('HMGET', keys.blocked(queue), unpack(ids)) or {}
    t.newest[wait] = #ids > 0 and 0
    if #(ids[#ids] or '') > MEMBER_MAX then
      read('LTRIM', wait, 0, -2)
    end
    for n = #blocked, 1, -1 do
      if #(blocked[n] or '') > MEMBER_MAX then
        short(keys.blocked(queue), ids[n])
      end
      if blocked[n] == key then
        t.newest[wait] = max_of(queue, ids[n]) or 0
        break
      end
    end
  end
  return t.newest[wait] or nil
end

-- Queues that wait for a slot of a key have it in turn: each stands in a line since one of its workers had a place and found no
-- slot, until it has one. Its score is that time; or, BAND below it, until when a slot is kept for it; or, BAND above it, until
-- when none is, since it let one pass. Its sixteenths of a millisecond count how many: each time one is kept for twice as long,
-- and then none for ten times as long, for each other queue in the line, so that all together cost a tenth of a slot.
local BAND, KEPT_MS, MISSED_MAX, REST, REST_MS_MAX = 10000000000000, 1000, 5, 10, 3600000
local function missed_in(score)
  local missed = math.floor((16 * score) % 16)
  return missed == missed and math.min(missed % 8, MISSED_MAX) or 0 -- none of ours is infinite
end

local function put_in_line(line, queue, at, missed)
  redis.call('ZADD', line, string.format('%.4f', at + missed / 16), queue)
end

-- A run was brought for the slot that is kept for its queue, and comes too early for its rate: its workers are not busy, so that it
-- lets none pass. The upper half of a millisecond says so.
local function note_early(queue, key)
  local score = (t.kept[queue .. ' ' .. key] or -1) >= 0 and redis.call('ZSCORE', keys.limit_line(key), queue)
  if score and score % 1 < 0.5 then
    put_in_line(keys.limit_line(key), queue, score + 0.5, 0)
  end
end

local function join_slot_line(queue, key)
  local slots, is_shared = keys.limit_slots(key), (read('SCARD', keys.limit_queues(key)) or 0) > 1
  -- Where the workers of a queue have no place beside the slots, its runs hold them, and none waits for one.
  for _, holder in ipairs(is_shared and {} or ours('SREM', slots, read('SRANDMEMBER', slots, SAMPLE) or {})) do
    is_shared = is_shared or string.sub(holder, 1, #queue + 1) ~= queue .. ' '
  end
  if is_shared then -- else there is nobody to have it in turn with
    local line = keys.limit_line(key)
    local score = read('ZSCORE', line, queue)
    local at = tonumber(score or 0)
    local rests_ms = at - BAND - t.now
    -- A time to come is from before the clock was set back.
    if score == false or at < BAND and at > t.now + 1 or at >= BAND and (rests_ms <= 0 or rests_ms > REST_MS_MAX) then
      put_in_line(line, queue, t.now, score and missed_in(score) or 0)
    end
    read('PEXPIRE', line, LINE_MS)
    t.ahead[queue .. ' ' .. key] = t.ahead[queue .. ' ' .. key] or nil -- where there was no line it is looked up again
  end
end

local function leave_slot_line(queue, key)
  if t.ahead[queue .. ' ' .. key] then
    read('ZREM', keys.limit_line(key), queue)
    t.ahead[queue .. ' ' .. key] = nil
  end
end

-- For how long a slot is kept for a queue, and then none. The line also has queues that left without a look: their rest is over.
local function times_of(line, missed)
  local count = redis.call('ZCOUNT', line, '-inf', '(' .. whole(BAND)) + redis.call('ZCOUNT', line, whole(BAND + t.now), '+inf')
  local others = math.max(count - 1, 1)
  local kept_ms = math.min(KEPT_MS * 2 ^ missed, math.floor(REST_MS_MAX / REST / others))
  return kept_ms, REST * kept_ms * others
end

-- For whom a slot was kept in vain, rests; unless its run came too early, or none waits for a slot there any more.
local function end_kept(line, key)
  local kept = read('ZRANGEBYSCORE', line, '-inf', '(0', 'WITHSCORES', 'LIMIT', 0, LOOK_MAX) or {}
  for n = 1, #kept, 2 do
    local missed, left_ms = missed_in(kept[n + 1]), kept[n + 1] + BAND - t.now
    local is_set_back, is_over = left_ms > KEPT_MS * 2 ^ missed + 1, left_ms <= 1 -- the clock was set back
    if is_set_back or is_over and (kept[n + 1] % 1 >= 0.5 or redis.pcall('LLEN', keys.wait(kept[n], key)) == 0) then
      redis.call('ZREM', line, kept[n])
    elseif is_over then
      local _, rest_ms = times_of(line, missed)
      put_in_line(line, kept[n], BAND + t.now + rest_ms, math.min(missed + 1, MISSED_MAX))
    end
  end
end

-- Whether a run of `queue` may take a slot of which so many are held: each queue in front of it has one first, if it takes it
-- while it is kept. For whom one is kept, goes by the number of those that kept it.
local function is_its_turn(queue, key, held, max)
  local line, place = keys.limit_line(key), queue .. ' ' .. key
  if t.ahead[place] == nil then
    local count = read('ZCARD', line) or 0
    if count > 0 then end_kept(line, key) end
    local score = count > 0 and read('ZSCORE', line, queue)
    t.kept[place] = score and tonumber(score) < 0 and held or -1
    local ahead = count > 0 and read('ZCOUNT', line, '-inf', '(' .. whole(BAND)) or 0
    t.ahead[place] = count > 0 and math.min(score and read('ZRANK', line, queue) or ahead, ahead)
  end
  if held >= max then return held == t.kept[place] end
  if held + (t.ahead[place] or 0) < max then return true end
  for _, other in ipairs(ours('ZREM', line, read('ZRANGE', line, 0, math.min(max - held, TOLD_AGAIN) - 1) or {})) do
    local score = tonumber(redis.call('ZSCORE', line, other))
    if score >= 0 and score < BAND then
      local missed = missed_in(score)
      put_in_line(line, other, t.now + times_of(line, missed) - BAND, missed)
      redis.pcall('SADD', keys.woken(other), key)
      ring(other, 'a', 1)
      ring(other, 's', 1)
    end
  end
  read('SADD', keys.woken(queue), key)
  t.again_at = t.now + KEPT_MS + 1
  return false
end

-- Whether the slot that `me` would take is free; healed where it is held by runs that do not run. One that is new waits behind
-- those of its queue that wait; they are looked at again, for it may bring another number.
local function has_slot(open, of, me, is_new)
  local key = of.slots
  local held = t.slots[key]
  if not held then
    held, t.keys = read('SCARD', key), t.keys - 1
  end
  if not held then return nil end
  t.slots[key] = held
  local newest, wait = newest_max(open.name, of.concurrency), keys.wait(open.name, of.concurrency)
  if is_new and newest and not t.emptied[wait] then
    if held < of.max then
      open.has_more = true
      read('SADD', keys.woken(open.name), of.concurrency)
    end
    return false
  end
  local max = not is_new and newest and newest > 0 and newest or of.max
  if held < max then return is_its_turn(open.name, of.concurrency, held, max) end
  if t.healed[key] or t.heals >= HEALED_MAX then return false end
  t.healed[key], t.heals = true, t.heals + 1
  for _, holder in ipairs(redis.call('SRANDMEMBER', key, SAMPLE)) do
    local queue, id = string.match(holder, '^(%S+) (%S+)$')
    if not t.admitted[holder] and (not queue or #holder > MEMBER_MAX or redis.pcall('HEXISTS', keys.run(queue), id) == 0) then
      t.slots[key] = t.slots[key] - redis.call('SREM', key, holder)
    end
  end
  return is_its_turn(open.name, of.concurrency, t.slots[key], max)
end
