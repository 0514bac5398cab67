-- Library: the server's time, and numbers as text.
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

-- Hold each of ARGV[first..last] to be a whole number; return the first that is none.
local function not_whole(first, last)
  for i = first, last do
    if not string.match(ARGV[i], '^%-?%d+$') then
      return ARGV[i]
    end
  end
  return nil
end
