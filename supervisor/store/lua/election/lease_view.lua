-- Read the lease. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  alive          prefix of the channels by which a holder shows that it lives; empty: do not count
--       lease          what follows the prefix in the name of a hash: the current term
--       genesis        of a string: identity of this data set
--       events         of a stream: its last id is in the reply, so that a listener misses nothing after it
-- Includes  lease
--
-- Returns  VIEW, then the lease
local presence = -1
if alive ~= '' then
  local epoch = redis.call('HGET', prefix .. lease, 'epoch')
  presence = epoch and presence_of(alive, epoch) or -1
end
return world('VIEW', now_ms(), presence)
