-- Library: the fence. A write is accepted from the newest term only: epoch and nonce must be equal, so that
-- neither an old holder nor a stranger with the same epoch (after data loss) gets through. Else the script ends here.
--
-- ARGV  epoch
--       nonce
local current = redis.call('HMGET', keys.lease, 'epoch', 'nonce')
if nonce == '' or current[1] ~= epoch or current[2] ~= nonce then
  return redis.error_reply('FENCED ' .. (current[1] or '0'))
end
