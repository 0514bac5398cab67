-- Read, page by page, the queues of which something is executed. Changes nothing of ours.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  cursor         0 at first, then the one of the previous page
-- Includes  clock
--
-- Returns  cursor (0 at the end), then names. One may come twice. One whose record cannot be read is among them: whoever
--          asks about it is told why.
local PAGE = 500
local page = redis.call('SSCAN', keys.queues, cursor, 'COUNT', PAGE)
local reply = { page[1] }
for _, queue in ipairs(ours('SREM', keys.queues, page[2])) do
  if redis.call('EXISTS', keys.run(queue)) == 1 then
    reply[#reply + 1] = queue
  end
end
return reply
