-- Forget what nothing else ever would: queues that are empty and that no open session takes, removed schedules, and jobs
-- that no replica has published for a week.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  cursor         in the set of queues; 0 at first, then the one of the previous page
--       idle_ms        a queue is kept for so long after the last attempt on record
--       jobs_ms        a job is kept for so long after it was last seen published
-- Includes  room
--           lives
--
-- Returns  cursor (0 at the end), then the queues that were forgotten
--
-- A queue that is paused stays, for the pause. What is in a queue counts, however it came there: nothing that can still run
-- is forgotten. May be called by any agent, and twice.
local PAGE, JOBS_PAGE, WAITS_PAGE = 100, 200, 500
if not_whole(cursor, idle_ms, jobs_ms) then return refuse('cursor, idle_ms and jobs_ms must be whole numbers') end
local now, is_served = now_ms(), {}

local function note_served()
  for _, session in ipairs(redis.call('HKEYS', keys.sessions)) do
    local queues = redis.call('HGET', keys.session(session), 'queues')
    for name in string.gmatch(queues or '', '[^,]+') do
      is_served[name] = true
    end
  end
end

-- Lists of those that waited for a concurrency key; whoever left one without a start said so. Returns whether all went.
local function forget_waits(queue)
  local woken = inform('SRANDMEMBER', keys.woken(queue), WAITS_PAGE) or {}
  for _, key in ipairs(woken) do
    redis.call('DEL', keys.wait(queue, key))
    inform('SREM', keys.limit_queues(key), queue)
    redis.call('SREM', keys.woken(queue), key)
  end
  return #woken < WAITS_PAGE
end

local function forget_queue(queue)
  local latest = redis.call('LRANGE', keys.hist(queue), -1, -1)[1]
  local ended = tonumber(string.match(latest or '', '^[^|]*|[^|]*|[^|]*|[^|]*|[^|]*|(%d+)') or 0)
  if is_served[queue] or ended > now - tonumber(idle_ms) or redis.call('EXISTS', keys.paused(queue)) == 1
    or redis.call('HLEN', keys.data(queue)) > 0 or redis.call('HLEN', keys.run(queue)) > 0 then
    return false
  end
  if not forget_waits(queue) then return false end
  redis.call('DEL', keys.run(queue), keys.att(queue), keys.later(queue), keys.dead(queue), keys.err(queue), keys.hist(queue),
    keys.stat(queue), keys.limits(queue), keys.blocked(queue), keys.woken(queue), keys.stale(queue), keys.cancel(queue),
    keys.bell(queue, 'a'), keys.bell(queue, 's'))
  for _, part in ipairs(waiting_lists()) do
    redis.call('DEL', keys.queue(queue) .. part)
  end
  return redis.call('SREM', keys.queues, queue) == 1
end

-- When a job was last published is noted when it is first met here, and by each publication.
local function forget_jobs()
  local jobs, seen = keys.jobs, keys.jobs_seen
  local page = redis.call('HSCAN', jobs, redis.call('GET', keys.jobs_cursor) or '0', 'COUNT', JOBS_PAGE)
  for n = 1, #page[2], 2 do
    local at = tonumber(redis.call('HGET', seen, page[2][n]) or '')
    if not at then
      redis.call('HSET', seen, page[2][n], whole(now))
    elseif at < now - tonumber(jobs_ms) then
      redis.call('HDEL', jobs, page[2][n])
      redis.call('HDEL', seen, page[2][n])
    end
  end
  redis.call('SET', keys.jobs_cursor, page[1], 'PX', 86400000)
end

local page = redis.call('SSCAN', keys.queues, cursor, 'COUNT', PAGE)
local reply = { page[1] }
if pcall(note_served) then -- else who serves what is not known
  for _, queue in ipairs(ours('SREM', keys.queues, page[2])) do
    local is_read, is_gone = pcall(forget_queue, queue)
    if is_read and is_gone then
      reply[#reply + 1] = queue
    end
  end
end
pcall(forget_jobs)
pcall(purge, now, 1)
return reply
