-- Read events. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  after          id of the last one that is known, and the oldest first after it; or '' for the newest
--       since_ms       only those that were added then or later, by Redis' clock; 0: all
--       count          at most so many, and at most 1000
-- Includes  clock
--
-- Returns  id of the last one; of the newest of all, or `after`, if none was read. Then id and JSON of each, oldest first
local COUNT_MAX = 1000
if not_whole(since_ms, count) or tonumber(count) < 1 then return refuse('since_ms or count') end
if after ~= '' and not string.match(after, '^%d+%-%d+$') then return refuse('after must be the id of an event') end
local log, count = keys.event_log, math.min(tonumber(count), COUNT_MAX)
local found
if after ~= '' then
  local read = redis.call('XREAD', 'COUNT', count, 'STREAMS', log, after)
  found = read and read[1] and read[1][2] or {}
else
  local newest = redis.call('XREVRANGE', log, '+', since_ms, 'COUNT', count)
  found = {}
  for i = #newest, 1, -1 do
    found[#found + 1] = newest[i]
  end
end
local last = found[1] and found[#found][1] or after
if last == '' then
  local newest = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
  last = newest and newest[1] or '0-0'
end
local reply = { last }
for _, entry in ipairs(found) do
  reply[#reply + 1], reply[#reply + 2] = entry[1], entry[2][2]
end
return reply
