-- Library: the server's time, numbers as text, and commands that may be refused.
-- Milliseconds since 1970 are below 2^53, so Lua's numbers hold them exactly; %.0f prints them without an exponent.
local function whole(n)
  return string.format('%.0f', n)
end

local function now_ms()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

local function refuse(what)
  return redis.error_reply('BADARG ' .. what)
end

-- The first of these arguments that is no whole number; nil where all are.
local function not_whole(...)
  for n = 1, select('#', ...) do
    local text = select(n, ...)
    if not string.match(text, '^%-?%d+$') then return text end
  end
  return nil
end

-- A number that anybody may have written, up to a trillion, so that sums of them are written as whole numbers; nil for other text.
local function foreign(text)
  local digits = string.match(text or '', '^%d+$')
  return digits and math.min(tonumber(digits), 1000000000000)
end

-- The number that a text is which anybody may have written, below 2^53; nil for what is none.
local function natural(text)
  return text and #text <= 15 and string.match(text, '^%d+$') and tonumber(text) or nil
end

-- Add one, or `by`, to a number of a hash, and return it. What is none begins at `first`.
local function raise(key, field, first, by)
  local n = (natural(redis.call('HGET', key, field)) or first) + (by or 1)
  redis.call('HSET', key, field, whole(n))
  return n
end

-- A watermark, a nominal time or a revision as it is written: without zeros in front; nil for what is none.
local function moment(text)
  local n = natural(text)
  return n and whole(n)
end

-- The reply of a command on a key that only informs people or wakes somebody earlier; nil if Redis refused it (a key of
-- another type, a stream whose ids are used up). It never stops what the key tells of.
local function inform(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply['err'] then return nil end
  return reply
end

-- A text that anybody may have written, cut where nothing of ours is so long: twice the largest envelope, which nobody can read
-- then. A reply with such texts would come too late, each time that it is asked for, or keep busy who gets it. Lines of history
-- are cut at LINE_MAX.
local READ_MAX, LINE_MAX = 131072, 4096
local function readable(text)
  return #text > READ_MAX and string.sub(text, 1, READ_MAX) or text
end

-- The same of a string, or of a field of a hash, that many read: it is cut there too, by whoever may, so that it takes long once.
local function short(key, field)
  local text = redis.call(field and 'HGET' or 'GET', unpack({ key, field }))
  if #(text or '') > READ_MAX then
    text = readable(text)
    redis.pcall(field and 'HSET' or 'SET', unpack({ key, field or text, field and text }))
  end
  return text
end

-- Those of `found`, members of a set or fields of a hash, that are no longer than any of ours; others are taken out by
-- `command`, since each who reads them would be as long about it again. With `width` 2 a value follows each. An error has none.
local MEMBER_MAX = 1024 -- of a member and its value; one without a value counts twice, and the longest has 320
local function ours(command, key, found, width)
  local kept, step = {}, width or 1
  for n = 1, #found, step do
    if #found[n] + #(found[n + step - 1] or '') > MEMBER_MAX then
      redis.pcall(command, key, found[n])
    else
      for m = n, n + step - 1 do
        kept[#kept + 1] = found[m]
      end
    end
  end
  return kept
end

-- The first entry of a list (0) or the last (-1); nil for none. Longer than any of ours it is taken out, after this.
local function entry_of(list, at)
  local id = redis.pcall('LINDEX', list, at) or nil
  if type(id) == 'string' and #id > MEMBER_MAX then
    redis.pcall('LTRIM', list, at + 1, -1 + math.min(at, 0))
  end
  return id
end
