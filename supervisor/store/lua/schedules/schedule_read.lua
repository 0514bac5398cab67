-- Read definitions. Writes nothing.
--
-- KEYS  definitions    hash: schedule to revision, timing digest, set digest and definition
-- ARGV  ids...         schedules
--
-- Returns  what is stored for each, nil where there is nothing; without the rest once it has 512 KiB
local BYTES_MAX = 524288
local found, bytes = redis.call('HMGET', definitions, unpack(ARGV)), 0
for n = 1, #found do
  if bytes >= BYTES_MAX then
    found[n] = nil
  end
  bytes = bytes + #(found[n] or '')
end
return found
