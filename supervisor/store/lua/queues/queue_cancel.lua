-- End runs because a person asks for it.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  history        how many ended attempts each queue remembers
--       kill_ms        a running one that has not ended after so long is let go of, and its process killed where it
--                      executes nothing else; 0: never
--       note           who asks and why, for the history
--       nonce          of this call: sent again, it gets the same reply for ten minutes and hits nothing that came since
--       runs...        queue (empty: where it is found), id and job (empty: any), at most 100 times
-- Includes  room
--           place
--           memory
--
-- Returns  for each run: what became of it, queue, attempt
--          CANCELLED  it waited; now it is gone, and its children never come to be
--          ASKED      it runs: the agent of its replica looks once a second (queue_unwanted.lua)
--          DEAD       it was given up; nothing was done
--          UNKNOWN    it ended, or never was
--
-- What the end of a waiting run causes is done here: its schedule, or the run that counts it, learns of it. A user of Redis who
-- may not write that, as a producer's may not, is refused (NOPERM) before anything is changed.
--
-- A request names the fence of the attempt that runs, so it cannot hit a later attempt, or another run of the same id.
-- Asked again, it stands as it is; only a time to kill can be added. It takes the place of a request to make room for a newer
-- run, whose time stands, and none takes its place.
local REQUEST_MS = 86400000
if not_whole(history, kill_ms) or tonumber(history) < 0 or tonumber(kill_ms) < 0 or not is_nonce(nonce) then
  return refuse('history, kill_ms, nonce and up to 100 runs of queue, id and job')
end
local earlier = remembered(nonce)
if earlier then return earlier end
local history, kill_ms = tonumber(history), tonumber(kill_ms)
local now = now_ms()
local reply = {}

local function ask(queue, id, data, token)
  local earlier = redis.call('HGET', keys.cancel(queue), id) or ''
  local how, asked, at = string.match(earlier, '^(%l+)|(.*)|(%d+)$')
  how = asked == token and how or ''
  local is_asked = how == 'cancel' or how == 'force'
  if is_asked and (how == 'force' or kill_ms == 0) then return end
  local ends, yields = kill_ms > 0 and now + kill_ms or nil, how == 'yield' and natural(at) or nil
  if yields then -- the newer run waits no longer than without the cancel
    ends = math.min(ends or yields, yields)
  end
  local request = (ends and 'force|' or 'cancel|') .. token .. '|' .. whole(ends or now)
  redis.call('HSET', keys.cancel(queue), id, request)
  redis.call('PEXPIRE', keys.cancel(queue), REQUEST_MS)
  if not is_asked then
    note_add(queue, history, id, 'cancel_asked', data, note, token)
  end
end

local function cancel(queue, id)
  local data = redis.call('HGET', keys.data(queue), id) or ''
  local place, where = place_of(queue, id, data)
  if place == 'running' then
    ask(queue, id, data, where)
    return 'ASKED', string.match(where, '|(%d+)|%d+$') or ''
  elseif place == 'dead' then
    return 'DEAD', ''
  end
  leave(queue, id, place, where)
  end_now(queue, history, id, data, 'cancelled', note)
  return 'CANCELLED', ''
end

local queues, refused = queues_named(FIRST)
if refused then return refused end
for i = FIRST, #ARGV, RUN_FIELDS do
  local queue, id = queues[i], ARGV[i + 1]
  local beyond = queue and refused_beyond(queue, { id }, '', nil, 'end')
  local place = beyond and place_of(queue, id, redis.call('HGET', keys.data(queue), id) or '')
  if beyond and place ~= 'running' and place ~= 'dead' then return beyond end
end
for i = FIRST, #ARGV, RUN_FIELDS do
  local id, n = ARGV[i + 1], #reply
  local queue = queues[i] and is_in(queues[i], id) and queues[i] -- the same run may be named twice
  reply[n + 1], reply[n + 2], reply[n + 3] = 'UNKNOWN', '', ''
  if queue then
    reply[n + 2] = queue
    reply[n + 1], reply[n + 3] = cancel(queue, id)
  end
end
return remember(nonce, reply)
