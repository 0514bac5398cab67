-- Try every command that the scripts use, on keys of this cluster that expire at once.
--
-- KEYS  prefix         every key of this cluster begins with it
--
-- Returns  the commands that this user may not run
local s, h, l, m = keys.preflight('s'), keys.preflight('h'), keys.preflight('l'), keys.preflight('m')
local z, x = keys.preflight('z'), keys.preflight('x')
local tries = {
  { 'TIME' }, { 'SET', s, '1', 'PX', '1000' }, { 'GET', s }, { 'SETNX', s, '1' },
  { 'EXISTS', s }, { 'PEXPIRE', s, '1000' }, { 'PTTL', s },
  { 'HSET', h, 'f', '1' }, { 'HSETNX', h, 'f', '1' }, { 'HGET', h, 'f' },
  { 'HMGET', h, 'f' },
  { 'HGETALL', h }, { 'HLEN', h }, { 'HKEYS', h }, { 'HEXISTS', h, 'f' },
  { 'HINCRBY', h, 'f', '1' }, { 'HSCAN', h, '0' }, { 'HDEL', h, 'f' },
  { 'LPUSH', l, '1' }, { 'RPUSH', l, '1' }, { 'LRANGE', l, '0', '0' }, { 'LLEN', l },
  { 'LINDEX', l, '0' }, { 'LPOS', l, '1' }, { 'LPOP', l }, { 'LTRIM', l, '1', '0' },
  { 'SADD', m, '1' }, { 'SCARD', m }, { 'SISMEMBER', m, '1' }, { 'SMEMBERS', m },
  { 'SRANDMEMBER', m, '1' }, { 'SSCAN', m, '0' },
  { 'SREM', m, '1' },
  { 'ZADD', z, '1', 'a' }, { 'ZCARD', z }, { 'ZRANK', z, 'a' }, { 'ZSCORE', z, 'a' },
  { 'ZMSCORE', z, 'a' }, { 'ZCOUNT', z, '0', '1' },
  { 'ZRANGE', z, '0', '0' }, { 'ZREVRANGE', z, '0', '0' },
  { 'ZRANGEBYSCORE', z, '0', '1', 'LIMIT', '0', '1' }, { 'ZSCAN', z, '0' },
  { 'ZREMRANGEBYRANK', z, '0', '0' }, { 'ZREM', z, 'a' },
  { 'XADD', x, 'MAXLEN', '~', '10', '*', 'f', '1' }, { 'XREVRANGE', x, '+', '-', 'COUNT', '1' },
  { 'XLEN', x }, { 'XREAD', 'COUNT', '1', 'STREAMS', x, '0' },
  { 'PUBSUB', 'NUMSUB', keys.alive('0') },
  { 'DEL', s, h, l, m, z, x },
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
