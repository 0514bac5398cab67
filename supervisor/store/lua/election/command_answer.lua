-- Say what became of a command, for whoever sent it, and forget the command.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  replica        that it was for
--       id             of the command
--       ttl_ms         how long the answer is kept
--       answer         JSON
-- Includes  clock
--           room
--
-- Returns  1 if it was still known
if not_whole(ttl_ms) or replica == '' or id == '' then return refuse('replica, id or ttl_ms') end
redis.call('SET', keys.command(id), answer, 'PX', ttl_ms)
return redis.call('HDEL', keys.commands(replica), id)
