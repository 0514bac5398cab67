-- Add events of one web process to the stream that all replicas share.
--
-- KEYS  log            stream, capped
--       writer         string: number of the last batch of this process; expires
-- ARGV  number         of this batch, above 0 and growing; the same again adds nothing
--       kept           how many events are kept, about
--       ttl_ms         how long the number is remembered
--       events...      JSON of each, at most 100
--
-- Includes  clock
--
-- Returns  how many were added
local EVENTS_MAX = 100
if not_whole(1, 3) or tonumber(ARGV[1]) < 1 or tonumber(ARGV[2]) < 1 or tonumber(ARGV[3]) < 1 then
  return refuse('number, kept or ttl_ms')
end
if #ARGV - 3 > EVENTS_MAX then
  return refuse('too many events')
end
if tonumber(ARGV[1]) <= tonumber(redis.call('GET', KEYS[2]) or '0') then
  return 0
end
for i = 4, #ARGV do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'e', ARGV[i])
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[3])
return #ARGV - 3
