-- Move task messages from a list of SpaceONE's into a queue, each as a run of its own, in one step: no message is in
-- neither, and none in both.
--
-- KEYS  prefix         every key of this cluster begins with it
--       list           theirs, in the same database
-- ARGV  queue          where the runs go
--       most           how many messages to move; fewer where they are long
--       bytes_max      a larger message is set aside, and a run that says so is enqueued in its place; so is one that becomes
--                      longer than can be read of a run, as each tab has six bytes there
--       before         of the data of a run: up to the value of its id
--       between        from there to the value of its message
--       after          from there to the end
--       aside_between  as between, of the run that stands for a message set aside; its value is the reason
--       aside_after    as after
-- Includes  limits
--
-- Returns  how many were moved, how many of them were set aside, how many are left
local ASIDE_MAX, ASIDE_MS = 100, 604800000 -- seven days: it may hold secrets
local STEP_BYTES = 262144 -- of messages, and the one that goes beyond: to write 12 MiB as JSON holds the server up for a second
if not_whole(most, bytes_max) or tonumber(most) < 1 or not is_head(before .. '{') and not is_head(before) then
  return refuse('most, bytes_max and before')
end
local head = string.sub(before, 1, 3)
local length = redis.pcall('LLEN', list)
if type(length) ~= 'number' then return refuse('list: its key holds something else, or may not be touched') end
local messages, left = {}, STEP_BYTES
while #messages < tonumber(most) and left > 0 do
  local message = redis.call('LRANGE', list, #messages, #messages)[1]
  if not message then break end
  messages[#messages + 1], left = message, left - #message
end
if #messages == 0 then return { 0, 0, 0 } end
check_types(queue, head)

local ESCAPES = { ['"'] = '\\"', ['\\'] = '\\\\', ['\n'] = '\\n' }
local function quoted(text) -- as JSON; bytes that are no UTF-8 stay, and the worker that reads them says so
  return '"' .. string.gsub(text, '[%c"\\]', function(c)
    return ESCAPES[c] or string.format('\\u%04x', string.byte(c))
  end) .. '"'
end

local counted, aside = keys.cloudforet_ingested, keys.cloudforet_aside(queue)
local number, set_aside, fresh, ids = natural(redis.call('HGET', counted, queue)) or 0, {}, {}, {}
for n, message in ipairs(messages) do
  local id
  repeat -- a run that somebody gave such an id keeps its data
    number = number + 1
    id = 'stp:' .. queue .. ':' .. whole(number)
  until redis.call('HEXISTS', keys.data(queue), id) == 0
  local data = #message <= tonumber(bytes_max) and before .. quoted(id) .. between .. quoted(message) .. after
  if not data or #data > READ_MAX then
    set_aside[#set_aside + 1] = message
    local size, limit = data and #data .. ' bytes as a run' or #message .. ' bytes', data and READ_MAX or bytes_max
    local reason = 'the task message is rejected: it has ' .. size .. ', the limit is ' .. limit
      .. '; it was set aside in the list ' .. aside .. ', which keeps the latest ' .. ASIDE_MAX
    data = before .. quoted(id) .. aside_between .. quoted(reason) .. aside_after
  end
  fresh[2 * n - 1], fresh[2 * n], ids[n] = id, data, id
end
redis.call('HSET', keys.data(queue), unpack(fresh)) -- the first write: a full Redis refuses it, and all stays as it was
redis.call('RPUSH', ready(queue, head), unpack(ids))
redis.call('SADD', keys.queues, queue)
for _, message in ipairs(set_aside) do
  redis.call('RPUSH', aside, message)
  redis.call('LTRIM', aside, -ASIDE_MAX, -1)
  redis.call('PEXPIRE', aside, ASIDE_MS)
end
redis.call('HSET', counted, queue, whole(number))
redis.call('LTRIM', list, #messages, -1)
count_add(queue, 'in', #messages)
ring(queue, string.sub(head, 1, 1), math.min(#messages, 4)) -- whoever wakes rings on while work is left
return { #messages, #set_aside, redis.call('LLEN', list) }
