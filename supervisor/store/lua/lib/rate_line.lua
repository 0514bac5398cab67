-- Library of the turn: the line of runs that came too early for a rate.
-- Includes  slots
local GHOSTS_MAX, AGAIN_MIN_US, AGAIN_EACH_US = 2000, 300000000, 100000

-- Which of `ids` wait for no rate: they are gone, execute, wait for a slot or are dead. Versions without a line leave them in it.
local function ghosts(queue, ids)
  local data, run = redis.call('HMGET', keys.data(queue), unpack(ids)), redis.call('HMGET', keys.run(queue), unpack(ids))
  local blocked, dead = read('HMGET', keys.blocked(queue), unpack(ids)), read('ZMSCORE', keys.dead(queue), unpack(ids))
  local gone = {}
  for n, id in ipairs(ids) do
    if #id > MEMBER_MAX or not data[n] or run[n] or (blocked and blocked[n]) or (dead and dead[n]) then
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
  if line then return line end
  local length, looked = read('ZCARD', key), 0
  t.keys = t.keys - 1
  while length and looked < math.min(length, GHOSTS_MAX) do
    local ids = redis.call('ZRANGE', key, looked, looked + STEP_MIN - 1)
    local gone = ghosts(queue, ids)
    if #gone == 0 then break end
    length, looked = length - redis.call('ZREM', key, unpack(gone)), looked + #ids - #gone
  end
  line = length and { key = key, queue = queue, length = length, front = {}, aged = {}, into = {}, joined = {}, out = {}, left = {} }
  t.lines[key] = line
  return line
end

-- How many are in front of a run in its line, its rank there, and the one that it would have by its age; without these it would be
-- the last, or where it is older than those that wait, the first.
local function place_in(line, id, is_older, came_us)
  local rank, ahead = redis.call('ZRANK', line.key, id), #line.front
  if not rank and is_older then return ahead end
  local place = rank or came_us and redis.call('ZCOUNT', line.key, '-inf', '(' .. whole(came_us))
  for _, other in ipairs(line.left) do
    ahead = ahead - ((not place or other < place) and 1 or 0)
  end
  for _, other in ipairs(line.aged) do
    ahead = ahead + ((not place or other <= place) and 1 or 0)
  end
  return ahead + (place or line.length + #line.into), rank, place
end

-- Whether the rate allows a start now, of a run that is not before its turn, and else when to try again. `tat`: when the
-- bucket would be full again.
local function is_early(of, queue, id, is_older, came_us)
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
  if not bucket then return nil end
  local per_us = math.max(of.per_ms, 1) * 1000
  local step = per_us / math.max(of.count, 1)
  bucket.per_us = math.max(bucket.per_us, per_us)
  -- No promise reaches further ahead than a whole period: a clock that was set back cannot hold runs up for longer.
  local tat = math.max(math.min(bucket.tat, t.now_us + per_us), t.now_us)
  local ahead, rank, place = place_in(line, id, is_older, came_us)
  line.bucket, line.step, line.per_us = bucket, step, per_us
  if tat + (ahead + 1) * step - per_us <= t.now_us then
    bucket.tat = tat + step
    if rank then
      line.left[#line.left + 1], line.out[#line.out + 1] = rank, id
    end
    return false
  end
  bucket.tat = tat
  if place and not rank then
    line.aged[#line.aged + 1] = place
    line.joined[#line.joined + 1], line.joined[#line.joined + 2] = whole(came_us), id
  elseif not rank then
    table.insert(is_older and line.front or line.into, id)
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
    if #line.front > 0 then
      lead_line(key, line.front)
    end
    if #line.into > 0 then
      local last = ours('ZREM', key, redis.call('ZRANGE', key, -1, -1, 'WITHSCORES'), 2)[2]
      local first = math.max(t.now_us, (tonumber(last or nil) or 0) + 1)
      for n, id in ipairs(line.into) do
        line.joined[#line.joined + 1], line.joined[#line.joined + 2] = whole(first + n), id
      end
    end
    if #line.joined > 0 then
      redis.call('ZADD', key, 'NX', unpack(line.joined))
    end
    local dues, heads = {}, line.bucket and redis.call('ZRANGE', key, 0, STEP_MIN - 1) or {}
    for n, id in ipairs(heads) do
      local due_us = math.max(line.bucket.tat, t.now_us) + n * line.step - line.per_us
      dues[2 * n - 1], dues[2 * n] = whole(math.ceil(math.max(due_us, t.now_us) / 1000)), id
    end
    if #line.joined + #dues > 0 then
      redis.call('PEXPIRE', key, RATE_LINE_MS)
    end
    if #dues > 0 then
      read('ZADD', keys.later(line.queue), 'XX', 'LT', unpack(dues))
      t.due_at[line.queue] = nil
    end
  end
  t.lines = {}
end
