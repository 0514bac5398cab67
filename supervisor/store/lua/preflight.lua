-- Try every command that the scripts use, on keys of this cluster that expire at once.
--
-- KEYS  prefix         every key of this cluster begins with it
--
-- Returns  the commands that this user may not run
local P = prefix .. 'preflight:'
local tries = {
  { 'TIME' }, { 'SET', P .. 's', '1', 'PX', '1000' }, { 'GET', P .. 's' }, { 'SETNX', P .. 's', '1' },
  { 'EXISTS', P .. 's' }, { 'PEXPIRE', P .. 's', '1000' }, { 'PTTL', P .. 's' }, { 'SCAN', '0', 'COUNT', '1' },
  { 'HSET', P .. 'h', 'f', '1' }, { 'HSETNX', P .. 'h', 'f', '1' }, { 'HGET', P .. 'h', 'f' },
  { 'HMGET', P .. 'h', 'f' },
  { 'HGETALL', P .. 'h' }, { 'HLEN', P .. 'h' }, { 'HKEYS', P .. 'h' }, { 'HEXISTS', P .. 'h', 'f' },
  { 'HINCRBY', P .. 'h', 'f', '1' }, { 'HSCAN', P .. 'h', '0' }, { 'HDEL', P .. 'h', 'f' },
  { 'LPUSH', P .. 'l', '1' }, { 'RPUSH', P .. 'l', '1' }, { 'LRANGE', P .. 'l', '0', '0' }, { 'LLEN', P .. 'l' },
  { 'LINDEX', P .. 'l', '0' }, { 'LPOS', P .. 'l', '1' }, { 'LPOP', P .. 'l' }, { 'LTRIM', P .. 'l', '1', '0' },
  { 'SADD', P .. 'm', '1' }, { 'SCARD', P .. 'm' }, { 'SISMEMBER', P .. 'm', '1' }, { 'SMEMBERS', P .. 'm' },
  { 'SRANDMEMBER', P .. 'm', '1' }, { 'SSCAN', P .. 'm', '0' },
  { 'SREM', P .. 'm', '1' },
  { 'ZADD', P .. 'z', '1', 'a' }, { 'ZCARD', P .. 'z' }, { 'ZRANK', P .. 'z', 'a' }, { 'ZSCORE', P .. 'z', 'a' },
  { 'ZMSCORE', P .. 'z', 'a' }, { 'ZCOUNT', P .. 'z', '0', '1' },
  { 'ZRANGE', P .. 'z', '0', '0' }, { 'ZREVRANGE', P .. 'z', '0', '0' },
  { 'ZRANGEBYSCORE', P .. 'z', '0', '1', 'LIMIT', '0', '1' }, { 'ZSCAN', P .. 'z', '0' },
  { 'ZREMRANGEBYRANK', P .. 'z', '0', '0' }, { 'ZREM', P .. 'z', 'a' },
  { 'XADD', P .. 'x', 'MAXLEN', '~', '10', '*', 'f', '1' }, { 'XREVRANGE', P .. 'x', '+', '-', 'COUNT', '1' },
  { 'XLEN', P .. 'x' }, { 'XREAD', 'COUNT', '1', 'STREAMS', P .. 'x', '0' },
  { 'PUBSUB', 'NUMSUB', prefix .. 'alive:0' },
  { 'DEL', P .. 's', P .. 'h', P .. 'l', P .. 'm', P .. 'z', P .. 'x' },
}
local refused = {}
for _, command in ipairs(tries) do
  local reply = redis.pcall(unpack(command))
  local why = type(reply) == 'table' and reply['err'] or ''
  if string.find(why, 'NOPERM', 1, true) or string.find(why, 'permission', 1, true)
    or string.find(why, "can't run this command", 1, true) then
    refused[#refused + 1] = string.lower(command[1])
  end
end
return refused
