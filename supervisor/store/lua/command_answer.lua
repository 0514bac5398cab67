-- Say what became of a command, for whoever sent it, and forget the command.
--
-- KEYS  prefix         of this cluster
-- ARGV  replica        that it was for
--       id             of the command
--       ttl_ms         how long the answer is kept
--       answer         JSON
--
-- Includes  clock
--           room
--
-- Returns  1 if it was still known
if not_whole(3, 3) or ARGV[1] == '' or ARGV[2] == '' then
  return refuse('replica, id or ttl_ms')
end
redis.call('SET', KEYS[1] .. 'command:' .. ARGV[2], ARGV[4], 'PX', ARGV[3])
return redis.call('HDEL', KEYS[1] .. 'commands:' .. ARGV[1], ARGV[2])
