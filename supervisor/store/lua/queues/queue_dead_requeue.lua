-- Let runs that were given up run again.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--       delay_ms       they may not start sooner; 0: now
--       history        how many ended attempts the queue remembers
--       note           who asks and why, for the history
--       job            which they must be of; empty: any
--       ids...         at most 100
-- Includes  place
--
-- Returns  for each run: REQUEUED, ABSENT (it is not dead, or of another job), BROKEN (nothing is left of it) or DUPLICATE, then the holder
--          of its unique key, else empty
--
-- To the tail, with no attempts and no crashes charged, so that it has as many as a new run; they count as interruptions
-- now, which cost nothing, so that the fence that its code sees still grows. Its last error stays until it ends. A user of
-- Redis who may not write the tally of the run that counts one is refused (NOPERM) before anything is changed.
if not_whole(delay_ms, history) or tonumber(delay_ms) < 0 or tonumber(history) < 0 or #ARGV < FIRST or #ARGV > FIRST + 99 then
  return refuse('delay_ms, history and up to 100 ids')
end
local wait, history, now = tonumber(delay_ms), tonumber(history), now_ms()
check_queue(queue)
redis.call('HLEN', keys.limit_unique)
local beyond = refused_beyond(queue, { unpack(ARGV, FIRST) }, job, 'tally', 'requeue')
if beyond then return beyond end

local function requeue(id)
  local data = redis.call('HGET', keys.data(queue), id)
  if not redis.call('ZSCORE', keys.dead(queue), id) or not is_of(data, job) then return 'ABSENT', '' end
  if not data or not string.match(data, '^[as][012]') then return 'BROKEN', '' end
  local holder = claim(queue, id, data)
  if holder then return 'DUPLICATE', holder end
  note_add(queue, history, id, 'requeued', data, note)
  keep_spent(queue, id, spent_of(queue, id))
  redis.call('ZREM', keys.dead(queue), id)
  forget_end(id)
  tally_revive(id, data)
  if wait > 0 then
    delay(queue, id, data, now + wait)
  else
    redis.call('RPUSH', ready(queue, data), id)
    ring(queue, string.sub(data, 1, 1), 1)
  end
  count_add(queue, 'requeued', 1)
  return 'REQUEUED', ''
end

local reply = {}
for i = FIRST, #ARGV do
  local n = #reply
  reply[n + 1], reply[n + 2] = requeue(ARGV[i])
end
return reply
