-- Enqueue what schedules owe, and advance their watermarks, in one step.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       skew_limit_ms  how far ahead of this server's time a due time may be
--       log_cap        how many decisions are remembered
--       items...       schedule, revision, mark_ms, nominal_ms, new_mark_ms, next_ms, missed, overlap, max_running, id,
--                      queue, data: once for each item; next_ms is empty when there is none
--
-- Includes  clock
--           term
--           queue
--
-- Returns  now_ms, then code and watermark for each item
--          FIRED    enqueued, and the watermark advanced
--          SKIPPED  an earlier run is unfinished: the watermark advanced, nothing enqueued
--          DUP      the watermark is not what the caller saw; nothing written. Equal to the new one: the caller's
--                   own earlier attempt, whose reply was lost
--          STALE    the definition changed or is gone; nothing written
--          SKEWED   the due time is too far ahead of this server's time; nothing written
--          error FENCED <epoch>: the term is not the current one; nothing written
--
-- Does not ask whether the lease has run out: a term that nobody replaced cannot conflict.
local FIELDS, FIRST = 12, 5
local refused = fence(KEYS[1] .. 'lease', ARGV[1], ARGV[2])
if refused then
  return refused
end
if not_whole(3, 4) or (#ARGV - FIRST + 1) % FIELDS ~= 0 then
  return refuse('items of 12 fields')
end
for i = FIRST, #ARGV, FIELDS do
  if not_whole(i + 1, i + 4) or not_whole(i + 6, i + 6) or not_whole(i + 8, i + 8) or not is_head(ARGV[i + 11])
    or not (ARGV[i + 5] == '' or string.match(ARGV[i + 5], '^%d+$')) then
    return refuse('item ' .. ARGV[i])
  end
  check_types(ARGV[i + 10], string.sub(ARGV[i + 11], 1, 2))
end

local S = KEYS[1] .. 'schedule:'
redis.call('HLEN', S .. 'mark') -- these raise, before the first write, if a key is not ours
redis.call('ZCARD', S .. 'next')
redis.call('HLEN', S .. 'live')
redis.call('XLEN', S .. 'log')
local now, limit, cap = now_ms(), tonumber(ARGV[3]), tonumber(ARGV[4])

-- Unfinished runs of a schedule, each checked against its record: what is gone or dead holds nothing up.
local function live(schedule)
  local found = {}
  for line in string.gmatch(redis.call('HGET', S .. 'live', schedule) or '', '[^\n]+') do
    local queue, id = string.match(line, '^(%S+) (.*)$')
    if queue and redis.call('HEXISTS', q(queue, 'data'), id) == 1
      and not redis.call('ZSCORE', q(queue, 'dead'), id) then
      found[#found + 1] = line
    end
  end
  return found
end

local function decide(i)
  local schedule, nominal, new_mark, next_ms = ARGV[i], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  local id, queue, data = ARGV[i + 9], ARGV[i + 10], ARGV[i + 11]
  local mark = redis.call('HGET', S .. 'mark', schedule) or '0'
  local definition = redis.call('HGET', S .. 'def', schedule)
  if not definition or string.match(definition, '^%d+') ~= ARGV[i + 1] then
    return 'STALE', mark
  end
  if mark ~= ARGV[i + 2] or tonumber(nominal) <= tonumber(mark) or tonumber(new_mark) <= tonumber(mark) then
    return 'DUP', mark
  end
  if math.max(tonumber(nominal), tonumber(new_mark)) > now + limit then
    return 'SKEWED', mark
  end

  redis.call('HSET', S .. 'mark', schedule, new_mark)
  if next_ms == '' then
    redis.call('ZREM', S .. 'next', schedule)
  else
    redis.call('ZADD', S .. 'next', next_ms, schedule)
  end
  local code = 'FIRED'
  if ARGV[i + 7] == 'skip' then
    local running = live(schedule)
    if #running >= tonumber(ARGV[i + 8]) then
      code = 'SKIPPED'
    else
      running[#running + 1] = queue .. ' ' .. id
    end
    redis.call('HSET', S .. 'live', schedule, table.concat(running, '\n'))
  end
  if code == 'FIRED' then
    redis.call('SADD', KEYS[1] .. 'queues', queue)
    if create(queue, id, data) then
      redis.call('RPUSH', ready(queue, data), id)
      count_add(queue, 'in', 1)
      ring(queue, string.sub(data, 1, 1), 1)
    end
  end
  redis.call('XADD', S .. 'log', 'MAXLEN', '~', cap, '*', 'schedule', schedule, 'nominal', nominal, 'epoch', ARGV[1],
    'run', code == 'FIRED' and id or '', 'code', code, 'missed', ARGV[i + 6], 'at', whole(now))
  return code, new_mark
end

local reply = { whole(now) }
for i = FIRST, #ARGV, FIELDS do
  local code, mark = decide(i)
  reply[#reply + 1] = code
  reply[#reply + 1] = mark
end
return reply
