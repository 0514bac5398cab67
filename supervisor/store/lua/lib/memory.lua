-- Library: a call that is sent again because its reply was lost gets the first reply, and does nothing: what it found then may
-- be another run or another pause by now. Strings only.
local MEMORY_MS = 600000

local function memory_of(nonce)
  return keys.enqueues(nonce)
end

local function is_nonce(nonce)
  return string.match(nonce, '^%x+$') ~= nil and #nonce <= 64
end

-- The reply to an earlier call with this nonce; nil if there was none.
local function remembered(nonce)
  local reply = redis.call('GET', memory_of(nonce))
  return reply and cjson.decode(reply) or nil
end

local function remember(nonce, reply)
  redis.call('SET', memory_of(nonce), cjson.encode(reply), 'PX', MEMORY_MS)
  return reply
end
