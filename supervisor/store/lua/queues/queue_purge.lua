-- End what waits in one place of a queue, a page at a time.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--       part           a ready or suspect list, later, or wait: and a concurrency key
--       job            only runs of this job; empty: all
--       position       of this page: 0 at first, then the one of the previous page
--       count          at most so many entries are looked at, 1 to 100
--       history        how many ended attempts the queue remembers
--       note           who asks and why, for the history
-- Includes  room
--           place
--
-- Returns  the next position, or empty at the end; how many entries were looked at; how many runs ended
--
-- All runs: from the head of the list, so each page leaves a shorter one. Those of one job: from the tail, where nothing
-- that is fetched or added meanwhile can shift an entry past the page unseen.
-- A user of Redis who may not write what the end of one of them causes is refused (NOPERM) before the page is changed.
if not_whole(position, count, history) or tonumber(position) < 0 or tonumber(count) < 1 or tonumber(count) > 100 then
  return refuse('position, a count of 1 to 100, and history must be whole numbers')
end
local count = tonumber(count)
if not is_part(part) then return refuse('part ' .. part) end
check_queue(queue)
local key, ended, is_waiting = keys.queue(queue) .. part, 0, is_wait(part)

local function finish(id, data)
  end_now(queue, tonumber(history), id, data, 'purged', note)
  ended = ended + 1
end

local function data_of(ids)
  return #ids > 0 and redis.call('HMGET', keys.data(queue), unpack(ids)) or {}
end

if part == 'later' then
  local ids, following = {}, '0'
  if job == '' then
    ids = redis.call('ZRANGE', key, 0, count - 1)
    following = #ids < count and '0' or '1'
  else
    local page = redis.call('ZSCAN', key, position, 'COUNT', count)
    following = page[1]
    for n = 1, #page[2], 2 do
      ids[#ids + 1] = page[2][n]
    end
  end
  local beyond = refused_beyond(queue, ids, job, nil, 'end')
  if beyond then return beyond end
  for n, data in ipairs(data_of(ids)) do
    if is_of(data, job) then
      redis.call('ZREM', key, ids[n])
      if data then
        finish(ids[n], data)
      else
        forget(queue, nil, ids[n])
      end
    end
  end
  return { following == '0' and '' or following, #ids, ended }
end

if job == '' then
  local beyond = refused_beyond(queue, redis.call('LRANGE', key, 0, count - 1), job, nil, 'end')
  if beyond then return beyond end
  local ids, skipped, places = take_entries(queue, part, count)
  for n, id in ipairs(ids) do
    local data = not skipped[n] and redis.call('HGET', keys.data(queue), id)
    if data and places[n] then
      finish(id, data)
    elseif not skipped[n] and not data and not is_waiting then -- it was cancelled
      forget(queue, nil, id)
    end
  end
  return { #ids < count and '' or '0', #ids, ended }
end

local ids = redis.call('LRANGE', key, -(position + count), -(position + 1))
local beyond = refused_beyond(queue, ids, job, nil, 'end')
if beyond then return beyond end
local datas = data_of(ids)
for n, id in ipairs(ids) do
  if datas[n] and job_of(datas[n]) == job and redis.call('HEXISTS', keys.data(queue), id) == 1 then
    local place, where = place_of(queue, id, datas[n])
    if where == key or is_waiting and is_place(part, place, where) then -- else it is a remainder
      leave(queue, id, place, where)
      finish(id, datas[n])
    end
  end
end
return { #ids < count and '' or whole(position + count), #ids, ended }
