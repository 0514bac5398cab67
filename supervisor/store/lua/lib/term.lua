-- Library: the fence. A write is accepted from the newest term only: epoch and nonce must be equal, so that
-- neither an old holder nor a stranger with the same epoch (after data loss) gets through.
local function fence(lease, epoch, nonce)
  local now = redis.call('HMGET', lease, 'epoch', 'nonce')
  if nonce ~= '' and now[1] == epoch and now[2] == nonce then
    return nil
  end
  return redis.error_reply('FENCED ' .. (now[1] or '0'))
end
