-- Say that the schedules of a configuration are brought in whole, or that they were refused.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       digest         of the whole set
--       is_applied     1 whole, 0 refused: nothing was changed
--       part           the last page or removal, see declare_page; now_ms of declare_begin and 0: there was none
-- Includes  clock
--           term
--
-- Returns  now_ms; 0 where a part is not there any more, since Redis went back meanwhile: the set is not in place
local SETS_MAX = 128
local sets = keys.schedule_sets
if is_applied == '1' and (redis.call('HGET', sets, '#parts') or '') ~= part then return '0' end
if is_applied == '1' then
  redis.call('HSET', sets, '#applied', digest)
  local known = redis.call('HLEN', sets) > SETS_MAX and redis.call('HGETALL', sets) or {}
  local newest = natural(redis.call('HGET', sets, '#revision')) or 0
  for i = 1, #known, 2 do -- half of them go, the oldest: no live replica holds one of those any more
    if string.sub(known[i], 1, 1) ~= '#' and known[i] ~= digest and (natural(known[i + 1]) or 0) <= newest - SETS_MAX / 2 then
      redis.call('HDEL', sets, known[i])
    end
  end
end
redis.call('HDEL', sets, '#declaring')
return whole(now_ms())
