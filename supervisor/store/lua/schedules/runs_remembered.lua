-- Tell which runs were enqueued by a backfill or a keyed trigger and are remembered. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  ids...         run ids, at most 1000
-- Includes  live
--
-- Returns  one digit for each: 1 remembered
local reply = {}
for i = FIRST, #ARGV do
  reply[i] = has_run(ARGV[i]) and '1' or '0'
end
return table.concat(reply)
