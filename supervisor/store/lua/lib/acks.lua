-- Library of the turn: acknowledgements and the children that they carry, as they were sent.
-- Includes  queue
local CHILD, CHILDREN_MAX = 4, 1000
local ENDS = { ok = true, expired = true, replaced = true, cancelled = true, rejected = true } -- only history and result are kept
local OUTCOMES = { ok = true, expired = true, replaced = true, cancelled = true, rejected = true, retry = true,
  dead = true, giveback = true, again = true }

local MARKS = { [''] = true, [' x'] = true, [' l'] = true, [' x l'] = true } -- what follows a payload

-- The acknowledgements, by queue. Most have nothing in `more`: for them there is no table, only places in these.
local by_queue, ack_queues, child_count = {}, {}, 0
local function more_of(text, payload)
  local schedule, ttl, delay, kind, children, marks =
      string.match(text, '^ (%S+) (%d+) (%d+) ([as-]) (%d+)([ xl]*)$')
  if not schedule or not payload or not MARKS[marks] then return nil end
  local more = { is_leaving = string.find(marks, 'x', 1, true), has_log = string.find(marks, 'l', 1, true),
    schedule = schedule ~= '-' and schedule or '', ttl = ttl, delay = tonumber(delay), kind = kind ~= '-' and kind or nil, children = tonumber(children), first_child = child_count, payload = payload }
  child_count = child_count + more.children
  return more
end
local NOTHING_MORE = { schedule = '', ttl = '0', delay = 0, children = 0, first_child = 0, payload = '' }

-- Read so many acknowledgements from ARGV; the place behind them, or nil and what is wrong.
local function read_acks(next_ack, acks)
  local places = {} -- of most the same text says where they are and since when
  for _ = 1, acks do
    local line, where, more = ARGV[next_ack] or '', ARGV[next_ack + 1] or '', nil
    local place = places[where]
    if not place then
      place = { string.match(where, '^(%S+) (%d+)(.*)$') }
      places[where] = place
    end
    local queue = place[1]
    if queue and place[3] ~= '' then
      more = more_of(place[3], ARGV[next_ack + 2])
      queue, next_ack = more and queue, next_ack + 1
      if more and more.is_leaving then
        local is_json, left_behind = pcall(cjson.decode, ARGV[next_ack + 2])
        more.left_behind, next_ack = is_json and type(left_behind) == 'table' and left_behind or nil, next_ack + 1
        if not more.left_behind then return nil, 'what ' .. line .. ' leaves behind' end
      end
      if more and more.has_log then
        more.log, next_ack = ARGV[next_ack + 2] or '', next_ack + 1
      end
    end
    next_ack = next_ack + 2
    local id, outcome, attempt = string.match(line, '^([^|]+)|(%l+)|(%d+)|')
    if not queue or not OUTCOMES[outcome] then return nil, 'acknowledgement ' .. line end
    local of = by_queue[queue]
    if not of then
      of = { name = queue, ids = {}, outcomes = {}, attempts = {}, fetched = {}, lines = {}, more = {} }
      by_queue[queue] = of
      ack_queues[#ack_queues + 1] = of
    end
    local n = #of.ids + 1
    of.ids[n], of.outcomes[n], of.attempts[n], of.fetched[n] = id, outcome, attempt, place[2]
    of.lines[n], of.more[n] = line, more
  end
  return next_ack
end

-- What is wrong with the children of all acknowledgements; nil for nothing.
local function children_fault(first)
  if first + child_count * CHILD ~= #ARGV + 1 or child_count > CHILDREN_MAX then
    return 'up to 1000 children of 4 fields, as many as the acknowledgements say'
  end
  for i = first, #ARGV, CHILD do
    if not string.find(ARGV[i + 2], '^%d+$') or not is_head(ARGV[i + 3]) then return 'delay or data of ' .. ARGV[i] end
  end
  return nil
end
