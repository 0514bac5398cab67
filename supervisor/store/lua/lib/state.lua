-- Library: the state of a schedule while its decisions are written down: the numbers of its first line (see queue), then
-- its latest decisions as stretches, newest first: `<code><from_ms> <span_ms> <count> <at_ms - to_ms> <revision>`.
-- A decision like the one before it makes that stretch longer, so a healthy schedule has one.
-- Includes  live
local STRETCHES_MAX = 20
local NO_NUMBERS = '0 0 0 0 0 0 0 0 0 0 0 0'

local function state_open(text)
  local head, top, tail = string.match(text, '^([^\n]*)\n?([^\n]*)(.*)$')
  return { head = head == '' and NO_NUMBERS or head, top = top, tail = tail }
end

local function state_numbers(st)
  st.numbers = st.numbers or counters(st.head)
  return st.numbers
end

-- How often it fired. Cheap: it is the first number, and the only one that changes while all is well.
local function state_fired(st)
  return st.numbers and st.numbers[1] or tonumber(string.match(st.head, '^%d+'))
end

local function state_add(st, place, count)
  if place == 1 and not st.numbers then
    local fired, others = string.match(st.head, '^(%d+)(.*)$')
    st.head = whole(tonumber(fired) + count) .. others
  else
    local numbers = state_numbers(st)
    numbers[place] = numbers[place] + count
  end
end

-- A decision about `count` nominal times in [from, to]; `mark` is where the one before it ended, if nothing lies between.
local function state_stretch(st, code, from, to, count, revision, mark, now)
  local last, start, span, n, seen = string.match(st.top, '^(%a+)(%d+) (%d+) (%d+) %-?%d+ (%d+)$')
  if last == code and seen == revision and tonumber(start) + tonumber(span) == tonumber(mark) then
    from, count = start, count + tonumber(n)
  elseif st.top ~= '' then
    st.tail = '\n' .. st.top .. st.tail
    local _, lines = string.gsub(st.tail, '\n', '')
    if lines >= STRETCHES_MAX then
      st.tail = string.match(st.tail, '^(.*)\n[^\n]*$')
    end
  end
  st.top = code .. from .. ' ' .. whole(tonumber(to) - tonumber(from)) .. ' ' .. whole(count) .. ' '
    .. whole(now - tonumber(to)) .. ' ' .. revision
end

local function state_close(st)
  local head = st.numbers and with_counters('', st.numbers) or st.head
  return st.top == '' and head or head .. '\n' .. st.top .. st.tail
end
