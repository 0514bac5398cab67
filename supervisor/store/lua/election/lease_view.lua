-- Read the lease. Writes nothing.
--
-- KEYS  lease          hash: the current term
--       genesis        string: identity of this data set
--       events         stream: its last id is in the reply, so that a listener misses nothing after it
-- ARGV  alive          prefix of the channels by which a holder shows that it lives; empty: do not count
-- Includes  lease
--
-- Returns  VIEW, then the lease
local presence = -1
if alive ~= '' then
  local epoch = redis.call('HGET', lease, 'epoch')
  presence = epoch and presence_of(alive, epoch) or -1
end
return world('VIEW', now_ms(), presence)
