-- Library: numbers of the lease record, in which anybody who may write to this server may have written something else.
-- Includes  clock
local DIGITS_MAX = 15 -- below 2^53

-- The number that a text is; nil for what is none.
local function count(text)
  return text and #text <= DIGITS_MAX and string.match(text, '^%d+$') and tonumber(text) or nil
end

-- Add one to a number of a hash. What is none begins at `first`.
local function raise(key, field, first)
  redis.call('HSET', key, field, whole((count(redis.call('HGET', key, field)) or first) + 1))
end
