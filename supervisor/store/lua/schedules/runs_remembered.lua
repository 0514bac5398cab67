-- Tell which runs were enqueued by a backfill or a keyed trigger and are remembered. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  ids...         run ids, at most 1000
--
-- Returns  one digit for each: 1 remembered
local reply = {}
for i = FIRST, #ARGV do
  reply[i] = redis.call('EXISTS', keys.ran(ARGV[i])) == 1 and '1' or '0'
end
return table.concat(reply)
