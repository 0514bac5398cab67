-- Add events of one web process to the stream that all replicas share.
--
-- KEYS  log            stream, capped
--       writer         string: number of the last batch of this process; expires
-- ARGV  number         of this batch, above 0 and growing; the same again adds nothing
--       kept           how many events are kept, about
--       ttl_ms         how long the number is remembered
--       events...      JSON of each, at most 100
-- Includes  clock
--
-- Returns  how many were added
local EVENTS_MAX = 100
if not_whole(number, kept, ttl_ms) or tonumber(number) < 1 or tonumber(kept) < 1 or tonumber(ttl_ms) < 1 then
  return refuse('number, kept or ttl_ms')
end
if #ARGV - FIRST + 1 > EVENTS_MAX then return refuse('too many events') end
if tonumber(number) <= (natural(redis.call('GET', writer)) or 0) then return 0 end
for i = FIRST, #ARGV do
  redis.call('XADD', log, 'MAXLEN', '~', kept, '*', 'e', ARGV[i])
end
redis.call('SET', writer, number, 'PX', ttl_ms)
return #ARGV - FIRST + 1
