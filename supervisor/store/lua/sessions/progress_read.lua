-- Read what a job last said of its run. Writes nothing.
--
-- KEYS  progress       string: fence, a space, JSON
--
-- Returns  the string; nil when there is none
local found = redis.pcall('GET', progress)
return type(found) == 'string' and found or false
