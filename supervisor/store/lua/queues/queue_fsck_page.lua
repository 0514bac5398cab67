-- Read a page of one part of a queue, for whoever verifies it. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  queue          which
--       part           data, run, att, err, limits, blocked, stale or stat; later or dead; or a list
--       position       0 at first, then the one of the previous page
--       count          about so many entries, 1 to 1000
-- Includes  clock
--
-- Returns  next position (0 at the end), then two texts for each entry: id or field, and of data its first three
--          characters, of run its fence and whether the session is known, of a list nothing, else the value.
--          One may come twice. One that is there all the while comes; of a list too, because it is read from its tail.
if not_whole(count) or tonumber(count) < 1 or tonumber(count) > 1000 or not_whole(position) then
  return refuse('position, and a count of 1 to 1000')
end
local count = tonumber(count)
local key, reply = keys.queue(queue) .. part, {}
local HASHES = { data = true, run = true, att = true, err = true, limits = true, blocked = true, stale = true, stat = true }

local function value_of(text)
  if part == 'data' then
    return string.sub(text, 1, 3)
  elseif part == 'err' then
    return ''
  elseif part ~= 'run' then
    return text
  end
  local session = string.match(text, '^(.*)|%d+|%d+$')
  local is_known = session and (redis.call('HEXISTS', keys.sessions, session) == 1
    or redis.call('SISMEMBER', keys.dying, session) == 1)
  return (is_known and '1' or '0') .. text
end

if HASHES[part] or part == 'later' or part == 'dead' then
  local page = redis.call(HASHES[part] and 'HSCAN' or 'ZSCAN', key, position, 'COUNT', count)
  reply[1] = page[1]
  for n = 1, #page[2], 2 do
    reply[#reply + 1], reply[#reply + 2] = page[2][n], value_of(page[2][n + 1])
  end
else
  local read = tonumber(position)
  local ids = redis.call('LRANGE', key, -(read + count), -(read + 1))
  reply[1] = #ids < count and '0' or whole(read + count)
  for _, id in ipairs(ids) do
    reply[#reply + 1], reply[#reply + 2] = id, ''
  end
end
return reply
