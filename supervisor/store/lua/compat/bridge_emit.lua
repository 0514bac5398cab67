-- Push a task message to a list of SpaceONE's: once for each run, as long as that is remembered.
--
-- KEYS  prefix         every key of this cluster begins with it
--       list           theirs, in the same database
-- ARGV  run            id of the run that pushes it
--       memory_ms      how long it is remembered
--       message        the task, as JSON
-- Includes  clock
--
-- Returns  PUSHED   it is in the list
--          AGAIN    this run pushed it before; nothing written
local LENGTH_MAX = 1000000
if not_whole(memory_ms) or run == '' then return refuse('run and memory_ms') end
local length = redis.pcall('LLEN', list)
if type(length) ~= 'number' then return refuse('list: its key holds something else, or may not be touched') end
local memory = keys.cloudforet_emitted(run)
if redis.call('EXISTS', memory) == 1 then return 'AGAIN' end
if length >= LENGTH_MAX then return refuse('list: it holds ' .. LENGTH_MAX .. ' messages, and nobody takes them') end
redis.call('SET', memory, '1', 'PX', memory_ms)
redis.call('RPUSH', list, message)
return 'PUSHED'
