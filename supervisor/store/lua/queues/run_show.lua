-- Find a run by its id. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  id             of the run
--       scan           how many of the newest ended attempts of each queue are searched; fewer where those of all queues
--                      were more than ATTEMPTS_MAX
--       position       of a page of all queues, if none is named; 0 at first
--       need           history: they are searched; job: only where nothing else names the run's job; end: only where
--                      nothing else tells that it ended
--       queues...      where to look; none: in all, of which a page is some 2,000. One whose keys are not ours is left out
-- Includes  queue
--
-- Returns  position of the next page, 0 at the end, then state, queue, data, charges, token, due_ms, died_ms, error, result,
--          progress, the concurrency key that it waits for, up to three runs that hold a slot of that key, one a line, how
--          it ended if somebody waited for that, the card of its job where it ended and left no result, up to two queues, one
--          a line, in which a run of its id ended ok, lines of ended attempts …
--          State is running, later, dead, blocked, queued, finished or unknown.
local HOLDERS_MAX, ATTEMPTS_MAX = 3, 200000
if not_whole(scan, position) or tonumber(scan) < 1 or (need ~= 'history' and need ~= 'job' and need ~= 'end') then
  return refuse('scan must be above 0, position whole, need history, job or end')
end
local queues, lines, following = {}, {}, '0'
local is_named = #ARGV >= FIRST
for i = FIRST, #ARGV do
  queues[#queues + 1] = ARGV[i]
end

local function keys_of_runs(queue)
  return { keys.data(queue), keys.run(queue), keys.hist(queue) }
end

if not is_named then
  queues, following = queues_with(keys_of_runs, position)
  table.sort(queues)
end

local function holders_of(key)
  local sample = redis.pcall('SRANDMEMBER', keys.limit_slots(key), HOLDERS_MAX)
  table.sort(sample)
  return table.concat(sample, '\n')
end

-- State, queue, data … error of a run that exists in `queue`; nil if it does not.
local function look(queue)
  local token, data = redis.call('HGET', keys.run(queue), id), redis.call('HGET', keys.data(queue), id)
  if not token and not data then return nil end
  local due, died = redis.call('ZSCORE', keys.later(queue), id), redis.call('ZSCORE', keys.dead(queue), id)
  local key = redis.call('HGET', keys.blocked(queue), id)
  local state = token and 'running' or due and 'later' or died and 'dead' or key and 'blocked' or 'queued'
  return { state, queue, data or '', redis.call('HGET', keys.att(queue), id) or '', token or '', due or '', died or '',
    redis.call('HGET', keys.err(queue), id) or '', key or '', key and holders_of(key) or '' }
end

local found, ended, foreign = nil, redis.call('GET', keys.ended(id)), nil
for _, queue in ipairs(queues) do -- a key that is not ours hides no run of another queue
  local is_ours, seen = pcall(look, queue)
  found, foreign = found or (is_ours and seen or nil), not is_ours and queue or foreign
end
local is_told = found or ended or (need == 'end' and redis.call('EXISTS', keys.result(id)) == 1)
if not found and ended then
  found = { 'finished', '', '', '', '', '', '', '', '', '' }
end
local newest_ms, ok_in = -1, {}
local known = is_named and #queues or math.max(redis.call('SCARD', keys.queues), 1)
local depth = math.min(tonumber(scan), math.max(math.floor(ATTEMPTS_MAX / known), 1))
local function search(queue)
  local past = redis.call('LRANGE', keys.hist(queue), -depth, -1)
  for n = #past, 1, -1 do
    if string.sub(past[n], 1, #id + 1) == id .. '|' then
      lines[#lines + 1] = past[n]
      if string.sub(past[n], #id + 2, #id + 4) == 'ok|' and #ok_in < 2 and ok_in[#ok_in] ~= queue then
        ok_in[#ok_in + 1] = queue
      end
      local ended_ms = tonumber(string.match(past[n], '^[^|]*|[^|]*|[^|]*|[^|]*|[^|]*|(%d+)')) or 0
      if not found or (found[1] == 'finished' and ended_ms > newest_ms) then -- ids are of one queue: the last to end counts
        found, newest_ms = { 'finished', queue, '', '', '', '', '', '', '', '' }, ended_ms
      end
    end
  end
end
for _, queue in ipairs(need ~= 'history' and is_told and {} or queues) do
  if not pcall(search, queue) then
    foreign = queue
  end
end
if not found and foreign and is_named then -- it may be there: raises what is wrong
  look(foreign)
  search(foreign)
end
local result, progress = redis.call('GET', keys.result(id)), redis.call('GET', keys.progress(id))
local shown = found or { result and 'finished' or 'unknown', '', '', '', '', '', '', '', '', '' }
local reply = { following }
for n = 1, 8 do
  reply[n + 1] = shown[n]
end
reply[10], reply[11], reply[12], reply[13], reply[14] = result or '', progress or '', shown[9], shown[10], ended or ''
local job = shown[1] == 'finished' and not result and lines[1] and string.match(lines[1], '^[^|]*|[^|]*|[^|]*|[^|]*|[^|]*|[^|]*|([^|]*)')
reply[15], reply[16] = job and redis.call('HGET', keys.jobs, job) or '', table.concat(ok_in, '\n')
for n, part in ipairs(reply) do
  reply[n] = readable(part)
end
for _, line in ipairs(lines) do
  reply[#reply + 1] = string.sub(line, 1, LINE_MAX)
end
return reply
