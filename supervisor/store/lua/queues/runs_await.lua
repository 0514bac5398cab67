-- Ask to be told of the end of runs.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  bell           of the process that waits
--       position       of a page of all queues, where runs that are not in theirs are searched; 0 at first
--       runs...        queue (empty: where it is found) and id, at most 100 times
-- Includes  place
--
-- Returns  position of the next page, 0 at the end, then for each run: the queue that it is in, while it has not ended;
--          empty where it has, or is on another page
--
-- A queue whose keys are not ours is left out: whoever asks reads there what is wrong, and the others get their answer.
-- The ids of those that end come to the list of the bell. A dead run has ended, until somebody requeues it.
-- A full memory refuses to note who waits, and so does a key of another type; neither fails the call: the caller asks again
-- anyway.
local FIELDS, AWAITED_MS, AWAITED_MAX, BELLS_MAX = 2, 3600000, 100000, 16
if not string.find(bell, '^%x+$') or #bell > 64 or not string.find(position, '^%d+$')
  or #ARGV < FIRST + 1 or #ARGV > FIRST - 1 + 100 * FIELDS
  or (#ARGV - FIRST + 1) % FIELDS ~= 0 then
  return refuse('bell, position and up to 100 runs of queue and id')
end
local awaited, reply = keys.awaited, { '' }
local length = redis.pcall('HLEN', awaited)
local room = type(length) == 'number' and AWAITED_MAX - length

local function await(id)
  local bells = redis.call('HGET', awaited, id) or ''
  bells = #bells <= BELLS_BYTES and bells or ''
  if string.find(' ' .. bells .. ' ', ' ' .. bell .. ' ', 1, true) then return end
  local _, spaces = string.gsub(bells, ' ', '')
  if (bells == '' and room <= 0) or spaces + 1 >= BELLS_MAX then
    return -- they look again now and then
  end
  room = room - (bells == '' and 1 or 0)
  redis.pcall('HSET', awaited, id, bells == '' and bell or bells .. ' ' .. bell)
end

local known, ids, places, found, following = {}, {}, {}, {}, '0'
for i = FIRST, #ARGV, FIELDS do
  local queue, id = ARGV[i], ARGV[i + 1]
  local is_ours, is_there = pcall(is_in, queue, id)
  if queue ~= '' and is_ours and is_there then
    known[i] = queue
  elseif queue == '' or redis.call('EXISTS', keys.ended(id), keys.result(id)) == 0 then -- else it ended: nobody moved it
    ids[#ids + 1], places[#places + 1] = id, i
  end
end
if #ids > 0 then
  following = look_in_page(ids, {}, found, position)
end
for n, queue in pairs(found) do
  known[places[n]] = queue
end

for i = FIRST, #ARGV, FIELDS do
  local id, queue = ARGV[i + 1], known[i]
  if queue and redis.pcall('ZSCORE', keys.dead(queue), id) then
    queue = nil
  end
  if queue and room then
    await(id)
  end
  reply[#reply + 1] = queue or ''
end
if room then redis.call('PEXPIRE', awaited, AWAITED_MS) end
reply[1] = following
return reply
