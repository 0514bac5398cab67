-- Find the schedules to look at now or soon. Writes nothing, but drops from the plan what no schedule can be called.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  after_ms       due later than this, or then and behind `after_id`; so a window is read in pages
--       after_id       empty, or where the previous page ended
--       until_ms       due at this or earlier
--       limit          at most so many of these
--       asked          at most so many of those that somebody asked to look at (a score of 0 or less)
--       late_ms        due at this or earlier counts as late
--       late           at most so many of these, oldest first
--       overdue_ms     how many are due earlier than this is counted
--       ids...         schedules to read whatever their score is
-- Includes  live
--
-- Returns  now_ms, how many are in the plan, how many definitions there are, how many are overdue, first due time after `until_ms` (or empty), 1 if there may be more of the soon ones, the
--          last entry of the stream of changes, 1 if there may be more late ones, how many are paused, how many invalid,
--          which streams that only inform are none of ours, how many backfills are on record, digest of the set in place (empty: none, or one is announced), then for each: id, score (or empty), revision (empty: no definition), set digest, watermark, state, pause
--          (or empty), number of live runs as far as known, how many follow, waiting nominal times
--          Order: on time, then asked for, then late, then by id.
local WAITING_MAX = 16
if not_whole(after_ms, until_ms, limit, asked, late_ms, late, overdue_ms) then return refuse('whole numbers') end
local next, limit = keys.schedule_next, tonumber(limit)
local ids, scores, is_listed = {}, {}, {}

-- How many of the runs in `lines` are unfinished, as far as known: those in front of the first that is are checked
-- against their records, since what is gone or dead holds nothing up.
local function unfinished(lines)
  local count, is_found = 0, false
  for line in string.gmatch(lines, '[^\n]+') do
    local queue, id = string.match(line, '^(%S+) (.*)$')
    if queue and not is_found then -- a foreign key in their place says nothing of the run
      local known, died = redis.pcall('HEXISTS', keys.data(queue), id), redis.pcall('ZSCORE', keys.dead(queue), id)
      is_found = known ~= 0 and type(died) ~= 'string'
    end
    count = count + (is_found and 1 or 0)
  end
  return count
end

local function list(found)
  for i = 1, #found, 2 do
    if not is_listed[found[i]] then
      is_listed[found[i]] = true
      ids[#ids + 1] = found[i]
      scores[#ids] = found[i + 1]
    end
  end
end

-- A page of what is on time. Many may share one score, so a page goes on behind the last id of the one before.
local function soon()
  if limit == 0 then return {} end
  local score = after_id ~= '' and redis.call('ZSCORE', next, after_id)
  if score and tonumber(score) == tonumber(after_ms) then
    local rank = redis.call('ZRANK', next, after_id) + 1
    local found = redis.call('ZRANGE', next, rank, rank + limit - 1, 'WITHSCORES')
    while #found > 0 and tonumber(found[#found]) > tonumber(until_ms) do
      found[#found], found[#found - 1] = nil, nil
    end
    return found
  end
  local after = (after_id == '' and '(' or '') .. after_ms
  return redis.call('ZRANGEBYSCORE', next, after, until_ms, 'WITHSCORES', 'LIMIT', 0, limit)
end

local on_time = soon()
local is_full = limit > 0 and #on_time >= 2 * limit
list(on_time)
if asked ~= '0' then
  list(redis.call('ZRANGEBYSCORE', next, '-inf', 0, 'WITHSCORES', 'LIMIT', 0, asked))
end
local older = {}
if late ~= '0' then
  older = redis.call('ZRANGEBYSCORE', next, '(0', late_ms, 'WITHSCORES', 'LIMIT', 0, late)
  list(older)
end
for i = FIRST, #ARGV do
  list({ ARGV[i], redis.call('ZSCORE', next, ARGV[i]) or '' })
end

local change = inform('XREVRANGE', keys.schedule_changes, '+', '-', 'COUNT', 1)
local sets = inform('HMGET', keys.schedule_sets, '#applied', '#declaring') or {}
local head = redis.call('ZRANGEBYSCORE', next, '(' .. until_ms, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local reply = {
  whole(now_ms()), whole(redis.call('ZCARD', next)), whole(redis.call('HLEN', keys.schedule_def)),
  whole(redis.call('ZCOUNT', next, '(0', '(' .. overdue_ms)),
  head[2] or '', is_full and '1' or '0',
  change and (change[1] and change[1][1] or '0-0') or '', #older >= 2 * math.max(tonumber(late), 1) and '1' or '0',
  whole(redis.call('HLEN', keys.schedule_paused)), whole(redis.call('HLEN', keys.schedule_invalid)),
  (change and '' or 'changes ') .. (inform('XLEN', keys.schedule_log) and '' or 'log'),
  whole(inform('HLEN', keys.schedule_backfills) or 1), -- of a foreign key the question about them tells
  not sets[2] and sets[1] or '',
}
if #ids == 0 then return reply end
local defs = redis.call('HMGET', keys.schedule_def, unpack(ids))
local marks = redis.call('HMGET', keys.schedule_mark, unpack(ids))
local states = redis.call('HMGET', keys.schedule_state, unpack(ids))
local pauses = redis.call('HMGET', keys.schedule_paused, unpack(ids))
local lives = redis.call('HMGET', keys.schedule_live, unpack(ids))
for n, id in ipairs(ids) do
  if not defs[n] and string.find(id, '[^\33-\126]') then
    redis.call('ZREM', next, id)
  end
  local revision, set = string.match(defs[n] or '', '^(%d+)\n%x*\n([^\n]*)\n')
  local state = string.match(states[n] or '', '^[^\n]*')
  local running = lives[n] and unfinished(lives[n]) or 0
  local waiting = {}
  if state ~= '' and counters(state)[8] > 0 then
    waiting = redis.pcall('LRANGE', keys.schedule_buffer(id), 0, WAITING_MAX - 1)
    waiting = waiting['err'] and {} or waiting
  end
  for k = #waiting, 1, -1 do
    if not moment(waiting[k]) then
      table.remove(waiting, k)
    end
  end
  local at = #reply
  reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = id, scores[n], natural(revision) and revision or '', set or ''
  reply[at + 5], reply[at + 6], reply[at + 7], reply[at + 8] = moment(marks[n]) or '0', state, pauses[n] or '', whole(running)
  reply[at + 9] = whole(#waiting)
  for k, nominal in ipairs(waiting) do
    reply[at + 9 + k] = nominal
  end
end
return reply
