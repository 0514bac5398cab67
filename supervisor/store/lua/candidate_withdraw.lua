-- Take a replica off the list of those who could lead.
--
-- KEYS  candidates     hash: who could lead
-- ARGV  replica        whose entry goes
--
-- Returns  1 if it was there
return redis.call('HDEL', KEYS[1], ARGV[1])
