-- Keep the record of a leadership of programs: it expires when no contender has asked for so long.
--
-- KEYS  lease          hash: the current term
--       genesis        string: identity of this data set
--       events         stream: what happened to the lease
--       fence          string: highest epoch ever granted
--       candidates     hash: who could lead
-- ARGV  ttl_ms         until they expire
--
-- Returns  how many of them there are
local kept = 0
for _, key in ipairs({ lease, genesis, events, fence, candidates }) do
  kept = kept + redis.call('PEXPIRE', key, ttl_ms)
end
return kept
