-- Library: what every script does alike to a queue.
-- Includes  clock
local BELL_MAX = 16

-- The two characters in front of a run's data, its kind and priority. Broken data ends where a worker reads it: as any other.
local function head_of(data)
  return string.match(data, '^[as][012]') or 'a1'
end

-- The list that a run waits in.
local function ready(queue, data)
  local head = head_of(data)
  return keys.ready(queue, string.sub(head, 1, 1), string.sub(head, 2, 2))
end

-- Wake up to `count` idle workers of one kind. Like history and counters, it never stops the work itself: what a
-- foreign key in its place makes impossible is left out.
local function ring(queue, letter, count)
  local bell = keys.bell(queue, letter)
  local tokens = count > 0 and redis.pcall('LLEN', bell)
  for _ = 1, type(tokens) == 'number' and math.min(count, BELL_MAX - tokens) or 0 do
    redis.call('RPUSH', bell, '1')
  end
end

-- Whether data begins as it must: kind, priority, limits in brackets if there are any, JSON.
local function is_head(head)
  return string.find(head, '^[as][012]{') ~= nil or string.find(head, '^[as][012]%[[%w._:/@#;-]+%]{') ~= nil
end

local function delay(queue, id, data, due)
  redis.call('ZADD', keys.later(queue), whole(due), id)
  if redis.call('ZRANK', keys.later(queue), id) == 0 then
    ring(queue, string.sub(data, 1, 1), 1) -- whoever waits for the former first one must learn that it is due earlier
  end
end

local function job_of(data)
  return string.match(data or '', '"job":"([^"|]*)"') or ''
end

local HEADER_MAX = 1024 -- ours have some 500 bytes

-- The limits in front of an envelope; nil for most runs, at the price of one byte.
local function header_of(data)
  return string.byte(data, 3) == 91 and string.match(string.sub(data, 1, HEADER_MAX + 2), '^..(%[[^%]]*%])') or nil
end

-- The template in a run's data and its whole envelope, decoded; empty tables where they cannot be read.
local function template_of(data)
  local is_json, envelope = pcall(cjson.decode, string.sub(data, 3 + #(header_of(data) or '')))
  envelope = is_json and type(envelope) == 'table' and envelope or {}
  return type(envelope['template']) == 'table' and envelope['template'] or {}, envelope
end

-- What made a run, as its envelope says: its schedule, and the run that it is a child of or follows. A program's has neither.
local function origin_of(data)
  local _, envelope = template_of(data or '')
  return tostring(envelope['schedule']) .. ' ' .. tostring(envelope['parent'])
end

-- Delete what is kept of runs beside their places and limits. Where a key has another type there is nothing of them.
local function erase(queue, ...)
  for _, hash in ipairs({ keys.data(queue), keys.att(queue), keys.err(queue) }) do
    redis.pcall('HDEL', hash, ...)
  end
end

local function count_add(queue, name, n)
  redis.pcall('HINCRBY', keys.stat(queue), name, n)
end

-- Ended attempts, the newest at the right. Trimmed now and then: up to HISTORY_SLACK more than the cap stay.
local HISTORY_SLACK = 100
local HISTORY_MAX = 1000000 -- of whoever does not know `queues.history`: its own turns trim to that
local function history_extend(queue, cap, lines)
  if cap > 0 and #lines > 0 then
    local length = redis.pcall('RPUSH', keys.hist(queue), unpack(lines))
    if type(length) == 'number' and length > cap + HISTORY_SLACK then
      redis.pcall('LTRIM', keys.hist(queue), -cap, -1)
    end
  end
end

-- A line of a run that ended, or that a person changed, without an acknowledgement.
local function history_add(queue, cap, id, outcome, job, note, now, attempt, session, fetched)
  history_extend(queue, cap, { table.concat({ id, outcome, attempt or '0', session or '', fetched or whole(now), whole(now), job,
    note }, '|') })
end

-- Whether `att` is what some version writes: charges, or none and an age (see `came_at`).
local function is_charge(att)
  return string.find(att, '^%d+,%d+,%d+$') ~= nil or string.find(att, '^0,0,0,%d+$') ~= nil
end

-- Attempts, crashes and interrupts charged so far.
local function charges(att)
  local a, c, i = string.match(att or '', '^(%d+),(%d+),(%d+)$')
  if not a or math.max(#a, #c, #i) > 15 then return 0, 0, 0 end -- as workers read them
  return tonumber(a), tonumber(c), tonumber(i)
end

-- One line of a queue's history that a person caused.
local function note_add(queue, cap, id, what, data, note, token)
  local session, attempt, fetched = string.match(token or '', '^(.*)|(%d+)|(%d+)$')
  attempt = attempt or whole((charges(redis.call('HGET', keys.att(queue), id))))
  history_add(queue, cap, id, what, job_of(data), note, now_ms(), attempt, session, fetched)
end

-- How often a run was begun, as its charges say.
local function spent_of(queue, id)
  local attempts, crashes, interrupts = charges(redis.call('HGET', keys.att(queue), id))
  return attempts + crashes + interrupts
end

-- A run that begins anew goes on with the count of those before it, as interruptions: its fence never shrinks.
local function keep_spent(queue, id, spent)
  if spent > 0 then
    redis.call('HSET', keys.att(queue), id, '0,0,' .. whole(spent))
  end
end

-- Forget a run that was given up, but for its line of history. Whether it was one.
local function drop_dead(queue, cap, id, data, note)
  if redis.call('ZREM', keys.dead(queue), id) == 0 then return false end
  note_add(queue, cap, id, 'dropped', data, note)
  erase(queue, id)
  count_add(queue, 'dropped', 1)
  return true
end

-- Whether a run that goes back unfinished runs alone next: it ended a process before, or more than LOSSES_FREE replicas in
-- a row were lost while it was executed.
local LOSSES_FREE = 2
local function is_accused(queue, id, crashes)
  local is_read, err = pcall(short, keys.err(queue), id)
  local losses = string.match(is_read and err or '', ',"losses":(%d%d?)}$')
  return crashes > 0 or (tonumber(losses) or 0) > LOSSES_FREE
end

-- Whether a run that failed has asked to run again since, or was put off before it began: so the record of its last failure
-- says, until the next one. It is no older than what waits, which may be what it waits for.
local AGAIN = '{"again":true,'
local function has_asked(queue, id)
  local err = redis.pcall('HGET', keys.err(queue), id)
  return type(err) == 'string' and string.sub(err, 1, #AGAIN) == AGAIN
end

local function note_asked(queue, id, att)
  local err = charges(att) > 0 and redis.pcall('HGET', keys.err(queue), id)
  if type(err) == 'string' and string.find(err, '^{"') and not has_asked(queue, id) then
    redis.call('HSET', keys.err(queue), id, AGAIN .. string.sub(err, 2))
  end
end

-- The lists in which runs of a queue wait for a worker, as parts of the queue.
local function waiting_lists()
  return { parts.ready('a', '0'), parts.ready('a', '1'), parts.ready('a', '2'), parts.ready('s', '0'), parts.ready('s', '1'),
    parts.ready('s', '2'), parts.suspect('a'), parts.suspect('s') }
end

-- Entries of a list that no longer stand for a run: it was cancelled, or waits in another list now. To take one out of the
-- middle of a long list would hold the server up, so it is counted in the queue's `stale` hash, by list and id, and skipped
-- when it comes to the head. An id has as many entries in a list as are counted here, and one more if that list is its
-- place; which of them is skipped does not matter.
local function stale_field(queue, list, id)
  return string.sub(list, #keys.queue(queue) + 1) .. ' ' .. id
end

-- The entry of `id` in `list` no longer counts.
local function stale_add(queue, list, id)
  local stale, field = keys.stale(queue), stale_field(queue, list, id)
  local count = redis.pcall('HINCRBY', stale, field, 1)
  if type(count) ~= 'number' or count < 1 then
    redis.call('HSET', stale, field, '1') -- somebody wrote something else there
  end
end

-- How many entries of `id` in `list` do not count.
local function stale_count(queue, list, id)
  return foreign(redis.call('HGET', keys.stale(queue), stale_field(queue, list, id)) or '') or 0
end

-- Which of `ids`, in the order of `list`, are to be skipped, as n = true. They are no longer counted afterwards, so they
-- must leave the list in the same script. nil if a foreign key is in the way.
local function stale_drop(queue, list, ids)
  local skipped, stale = {}, keys.stale(queue)
  local known = #ids > 0 and redis.pcall('HLEN', stale) or 0
  if known == 0 then
    return skipped
  elseif type(known) ~= 'number' then
    return nil
  end
  local fields = {}
  for n, id in ipairs(ids) do
    fields[n] = stale_field(queue, list, id)
  end
  local left = {}
  for n, count in ipairs(redis.call('HMGET', stale, unpack(fields))) do
    local field = fields[n]
    left[field] = left[field] or foreign(count or '') or 0
    if left[field] > 0 then
      left[field] = left[field] - 1
      skipped[n] = true
      if left[field] == 0 then
        redis.call('HDEL', stale, field)
      else
        redis.call('HSET', stale, field, whole(left[field]))
      end
    end
  end
  return skipped
end

-- Entries of a list, up to the first that comes again: what is read of them together is read once.
local function distinct(ids)
  local seen = {}
  for n, id in ipairs(ids) do
    if seen[id] then return { unpack(ids, 1, n - 1) } end
    seen[id] = true
  end
  return ids
end

-- Cut those fields of a hash that would be read as often as their entries are in a list.
local function cut_repeated(hash, ids)
  for _, id in ipairs(distinct(ids) == ids and {} or ids) do
    short(hash, id)
  end
end

-- Take a delayed run out whose id is longer than any of ours: each turn would read it until it is due. Whether it was one.
local function is_taken_out(queue, id)
  if #(id or '') <= MEMBER_MAX then return false end
  redis.call('ZREM', keys.later(queue), id)
  erase(queue, id)
  return true
end

-- Those of `ids` for whose end somebody waits: id to bells; nil for none, as mostly.
local function awaited_of(ids)
  if #ids == 0 or redis.pcall('EXISTS', keys.awaited) ~= 1 then return nil end
  local known, found = redis.pcall('HMGET', keys.awaited, unpack(ids)), nil
  for n, id in ipairs(known['err'] and {} or ids) do
    if known[n] then
      found = found or {}
      found[id] = known[n]
    end
  end
  return found
end

-- Some QUEUES_MAX of the queues that are known, from `cursor` on, but those around which there is none of the keys that `of`
-- names; and where the next page begins. Anybody can make names of queues: of most there is nothing.
local function queues_with(of, cursor)
  local QUEUES_MAX, AT_ONCE = 2000, 100
  local page, found = redis.call('SSCAN', keys.queues, cursor, 'COUNT', QUEUES_MAX), {}
  page[2] = ours('SREM', keys.queues, page[2])
  for first = 1, #page[2], AT_ONCE do
    local last, asked = math.min(first + AT_ONCE - 1, #page[2]), {}
    for n = first, last do
      for _, key in ipairs(of(page[2][n])) do
        asked[#asked + 1] = key
      end
    end
    local is_any = redis.call('EXISTS', unpack(asked)) > 0
    for n = first, is_any and last or 0 do
      found[#found + 1] = page[2][n]
    end
  end
  return found, page[1]
end
