-- Which runs must give way to a newer one of their schedule, by sessions that hold them. See fire.lua.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  sessions...    of the caller's replica
--
-- Includes  clock
--
-- Returns  queue, id, how (stop or kill), session: for each
--
-- A request whose run has gone on without it is forgotten: to stop, once the run has another fence or none; to kill,
-- once the session is gone, or a minute has passed in which its replica can have acted.
local KILL_MS = 60000
local mine, reply, now = {}, {}, now_ms()
for i = 1, #ARGV do
  mine[ARGV[i]] = true
end
local queues = redis.call('SMEMBERS', KEYS[1] .. 'queues')
table.sort(queues)
for _, queue in ipairs(queues) do
  local Q = KEYS[1] .. 'q:' .. queue .. ':'
  local requests = redis.call('HGETALL', Q .. 'cancel')
  for n = 1, #requests, 2 do
    local id = requests[n]
    local how, token, session, at = string.match(requests[n + 1], '^(%l+)|((.*)|%d+|%d+)|(%d+)$')
    local is_over = not how
    if how == 'stop' then
      is_over = redis.call('HGET', Q .. 'run', id) ~= token
    elseif how == 'kill' then
      is_over = redis.call('HEXISTS', KEYS[1] .. 'sessions', session) == 0 or tonumber(at) + KILL_MS < now
    end
    if is_over then
      redis.call('HDEL', Q .. 'cancel', id)
    elseif mine[session] then
      local at_end = #reply
      reply[at_end + 1], reply[at_end + 2], reply[at_end + 3], reply[at_end + 4] = queue, id, how, session
    end
  end
end
return reply
