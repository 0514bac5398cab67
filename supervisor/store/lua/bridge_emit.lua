-- Push a task message to a list of SpaceONE's: once for each run, as long as that is remembered.
--
-- KEYS  prefix         every key of this cluster begins with it
--       list           theirs, in the same database
-- ARGV  run            id of the run that pushes it
--       memory_ms      how long it is remembered
--       message        the task, as JSON
--
-- Includes  clock
--
-- Returns  PUSHED   it is in the list
--          AGAIN    this run pushed it before; nothing written
local LENGTH_MAX = 1000000
if not_whole(2, 2) or ARGV[1] == '' then
  return refuse('run and memory_ms')
end
local length = redis.pcall('LLEN', KEYS[2])
if type(length) ~= 'number' then
  return refuse('list: its key holds something else, or may not be touched')
end
local memory = KEYS[1] .. 'cloudforet:emitted:' .. ARGV[1]
if redis.call('EXISTS', memory) == 1 then
  return 'AGAIN'
end
if length >= LENGTH_MAX then
  return refuse('list: it holds ' .. LENGTH_MAX .. ' messages, and nobody takes them')
end
redis.call('SET', memory, '1', 'PX', ARGV[2])
redis.call('RPUSH', KEYS[2], ARGV[3])
return 'PUSHED'
