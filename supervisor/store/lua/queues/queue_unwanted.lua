-- Which runs must end before their time, by sessions that hold them: in favour of a newer one of their schedule
-- (lib/fire_decide.lua) or with their concurrency key (lib/waiting.lua), or because a person asked for it (queue_cancel.lua).
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  history        how many ended attempts each queue remembers
--       last_queue     where the page before ended, as `<cursor in the set of queues> <queue>`; empty at first
--       last_cursor    in that queue; 0 at first
--       sessions...    of the caller's replica
-- Includes  room
--           place
--
-- Returns  last_queue and last_cursor of the next page (empty at the end), then
--          queue, id, how (stop or kill), session, why (replaced or cancelled), fetched_ms, attempt, job, schedule: for
--          each execution, the last three only if this call let go of it, and empty where nobody can read them
--
-- A request whose run has gone on without it is forgotten: to stop, once the run has another fence or none; to kill,
-- once the session is gone, or a minute has passed in which its replica can have acted.
-- One that says `force` or `yield` is to stop until its time, and then Redis lets go of the run, whose worker's report will be
-- refused. A page ends behind about QUEUES_MAX queues, LOOK_MAX requests, or LET_GO_MAX runs that were let go of. A queue
-- whose keys or name are not ours is left out.
local QUEUES_MAX, LOOK_MAX, LET_GO_MAX, SCAN = 2000, 1000, 100, 100
local KILL_MS, REQUEST_MS, ID_MAX = 60000, 86400000, 255
local HOW = {
  stop = { 'stop', 'replaced' }, kill = { 'kill', 'replaced' },
  yield = { 'stop', 'replaced' }, cancel = { 'stop', 'cancelled' }, force = { 'stop', 'cancelled' }, ['end'] = { 'kill', 'cancelled' },
}
if not_whole(history) or not string.match(last_cursor or '', '^%d+$') then
  return refuse('history and last_cursor must be whole numbers')
end
local mine, reply, now = {}, { '', '0' }, now_ms()
local looked, ended = 0, 0
for i = FIRST, #ARGV do
  mine[ARGV[i]] = true
end

-- The time of a run that was asked to end is over: attempt, job and schedule of what Redis lets go of; nil when this page
-- has ended enough of them, or a key is not ours.
local function let_go(queue, id, token, what, how)
  if ended >= LET_GO_MAX or not pcall(check_queue, queue) then return nil end
  ended = ended + 1
  local data = redis.call('HGET', keys.data(queue), id) or ''
  end_now(queue, tonumber(history), id, data, what, 'it did not end in time, so it was let go of', token)
  redis.call('HSET', keys.cancel(queue), id, how .. '|' .. token .. '|' .. whole(now))
  redis.call('PEXPIRE', keys.cancel(queue), REQUEST_MS)
  return { whole(natural(string.match(token, '|(%d+)|%d+$')) or 0), job_and_schedule(data) }
end

local function look(queue, id, request)
  local how, token, session, fetched, at = string.match(request, '^(%l+)|((.*)|%d+|(%d+))|(%d+)$')
  local kind = #id <= ID_MAX and natural(fetched) and HOW[how]
  local is_over = not kind
  if kind and kind[1] == 'stop' then
    is_over = redis.call('HGET', keys.run(queue), id) ~= token
  elseif kind then
    is_over = redis.call('HEXISTS', keys.sessions, session) == 0 or tonumber(at) + KILL_MS < now
  end
  if is_over then
    redis.call('HDEL', keys.cancel(queue), id)
  elseif mine[session] then
    local killed = (how == 'force' and 'end') or (how == 'yield' and 'kill')
    local gone = killed and tonumber(at) <= now and let_go(queue, id, token, kind[2], killed)
    kind = gone and HOW[killed] or kind
    gone = gone or { '', '', '' }
    for _, value in ipairs({ queue, id, kind[1], session, kind[2], fetched, gone[1], gone[2], gone[3] }) do
      reply[#reply + 1] = value
    end
  end
end

-- Look at the requests of a queue from `cursor` on; where to go on when the page is full, else nil.
local function look_at(queue, cursor)
  repeat
    local page = redis.pcall('HSCAN', keys.cancel(queue), cursor, 'COUNT', SCAN)
    if page['err'] then return nil end
    local requests = ours('HDEL', keys.cancel(queue), page[2], 2)
    for n = 1, #requests, 2 do
      pcall(look, queue, requests[n], requests[n + 1])
    end
    cursor, looked = page[1], looked + #page[2] / 2
    if looked >= LOOK_MAX or ended >= LET_GO_MAX then return cursor end
  until cursor == '0'
  return nil
end

local scan, last = string.match(last_queue, '^(%d+) (.*)$')
scan, last = scan or '0', last or ''
local page, queues, requests = redis.call('SSCAN', keys.queues, scan, 'COUNT', QUEUES_MAX), {}, {}
for _, queue in ipairs(ours('SREM', keys.queues, page[2])) do
  if queue >= last and string.find(queue, '^%w[%w._-]*$') then -- any other can be no position of a page
    queues[#queues + 1] = queue
  end
end
table.sort(queues)
for n, queue in ipairs(queues) do
  requests[n] = keys.cancel(queue)
end
reply[1] = page[1] ~= '0' and page[1] .. ' ' or ''
for first = 1, #queues, SCAN do
  local to = math.min(first + SCAN - 1, #queues)
  local is_asked = redis.call('EXISTS', unpack(requests, first, to)) > 0 -- of most queues nothing is
  for n = first, is_asked and to or 0 do
    local cursor = look_at(queues[n], queues[n] == last and last_cursor or '0')
    local following = cursor == '0' and queues[n + 1] or cursor ~= '0' and queues[n]
    if cursor and following then
      reply[1], reply[2] = scan .. ' ' .. following, cursor
    end
    if cursor then return reply end
  end
end
return reply
