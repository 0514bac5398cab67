-- Which runs must end before their time, by sessions that hold them: in favour of a newer one of their schedule
-- (fire.lua) or with their concurrency key (lib/fetch.lua), or because a person asked for it (queue_cancel.lua).
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  history        how many ended attempts each queue remembers
--       sessions...    of the caller's replica
--
-- Includes  clock
--           queue
--           limits
--           stale
--           place
--
-- Returns  queue, id, how (stop or kill), session, why (replaced or cancelled): for each
--
-- A request whose run has gone on without it is forgotten: to stop, once the run has another fence or none; to kill,
-- once the session is gone, or has another run of this id, or a minute has passed in which its replica can have acted.
-- One that says `force` or `yield` is to stop until its time, and then Redis lets go of the run, whose worker's report will be
-- refused.
local KILL_MS, REQUEST_MS = 60000, 86400000
local HOW = {
  stop = { 'stop', 'replaced' }, kill = { 'kill', 'replaced' },
  yield = { 'stop', 'replaced' }, cancel = { 'stop', 'cancelled' }, force = { 'stop', 'cancelled' }, ['end'] = { 'kill', 'cancelled' },
}
if not_whole(1, 1) then
  return refuse('history must be a whole number')
end
local mine, reply, now = {}, {}, now_ms()
for i = 2, #ARGV do
  mine[ARGV[i]] = true
end

-- The time of a run that was asked to end is over.
local function let_go(queue, id, token, what, how)
  check_queue(queue)
  end_now(queue, tonumber(ARGV[1]), id, redis.call('HGET', q(queue, 'data'), id) or '', what,
    'it did not end in time, so it was let go of', token)
  redis.call('HSET', q(queue, 'cancel'), id, how .. '|' .. token .. '|' .. whole(now))
  redis.call('PEXPIRE', q(queue, 'cancel'), REQUEST_MS)
end

local queues = redis.call('SMEMBERS', KEYS[1] .. 'queues')
table.sort(queues)
for _, queue in ipairs(queues) do
  local requests = redis.call('HGETALL', q(queue, 'cancel'))
  for n = 1, #requests, 2 do
    local id = requests[n]
    local how, token, session, at = string.match(requests[n + 1], '^(%l+)|((.*)|%d+|%d+)|(%d+)$')
    local kind = HOW[how or '']
    local is_over = not kind
    if kind and kind[1] == 'stop' then
      is_over = redis.call('HGET', q(queue, 'run'), id) ~= token
    elseif kind then
      local held = redis.call('HGET', q(queue, 'run'), id) or '' -- by the same session again: another run of this id
      is_over = redis.call('HEXISTS', KEYS[1] .. 'sessions', session) == 0 or tonumber(at) + KILL_MS < now
        or (held ~= token and string.sub(held, 1, #session + 1) == session .. '|')
    end
    if is_over then
      redis.call('HDEL', q(queue, 'cancel'), id)
    elseif mine[session] then
      if how == 'force' and tonumber(at) <= now then
        let_go(queue, id, token, 'cancelled', 'end')
        kind = HOW['end']
      elseif how == 'yield' and tonumber(at) <= now then
        let_go(queue, id, token, 'replaced', 'kill')
        kind = HOW['kill']
      end
      local m = #reply
      reply[m + 1], reply[m + 2], reply[m + 3], reply[m + 4], reply[m + 5] = queue, id, kind[1], session, kind[2]
    end
  end
end
return reply
