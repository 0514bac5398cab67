-- Library of fire: its items, as they were sent. What is shared by items is read once: shapes, and groups of runs.
-- Includes  run
local WHAT = { due = true, missed = true, start = true, force = true, drop = true, initial = true }
local names, place, shapes, kinds, items, groups = {}, {}, {}, {}, {}, {}
local function shape_of(text)
  local overlap, running, buffer, grace, runs, wait, keep, queue =
    string.match(text, '^(%l[%l_]*) (%d+) (%d+) (%d+) (%S+) (%S+) (%S+) (%S+)$')
  shapes[text] = overlap and {
    overlap = overlap, running = tonumber(running), buffer = tonumber(buffer), grace = tonumber(grace),
    runs = tonumber(runs), wait = wait == '-' and '' or wait, keep = tonumber(keep), queue = queue,
    is_delayed = string.find(wait, 'c', 1, true) ~= nil, within = tonumber(string.match(wait, 'w(%d+)')),
  }
  return shapes[text]
end

-- What the runs of one queue, kind and priority share: where they go, and which of them there are.
local function group_of(queue, data)
  local head = string.sub(data, 1, 2)
  local of = kinds[queue] or { known = {} }
  kinds[queue] = of
  if not of[head] then
    check_types(queue, string.sub(data, 1, 3))
    of[head] = { queue = queue, list = ready(queue, data), letter = string.sub(data, 1, 1), ids = {}, new = {},
      known = of.known, entering = {} }
    groups[#groups + 1] = of[head]
  end
  if header_of(data) and not of.is_limited then
    check_types(queue, string.sub(data, 1, 3))
    of.is_limited = true
  end
  return of[head]
end

local LINE = '^(%l+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)(%l*) (%S+) (%S+)$'
local ENDING = '^(%l+) (%d+) (%d+) (%d+) (%d+) (%-) (%d+)(%l*) (%S+) (%S+)$'

-- Take an item in: its line, its shape and its data; false if it cannot be read.
local function add_item(line, shape, data)
  local what, revision, mark, nominal, new_mark, next, missed, why, name, id = string.match(line, LINE)
  if not what then
    what, revision, mark, nominal, new_mark, next, missed, why, name, id = string.match(line, ENDING)
  end
  local policy, has_run = shapes[shape] or shape_of(shape), what ~= 'missed' and what ~= 'drop'
    and not (what == 'initial' and missed ~= '0')
  if not WHAT[what] or not policy or (has_run and not is_head(data)) then return false end
  local group = has_run and group_of(policy.queue, data)
  if group then
    group.ids[#group.ids + 1] = id
  end
  local n = place[name]
  if not n then
    n = #names + 1
    names[n], place[name] = name, n
  end
  items[#items + 1] = { what = what, revision = revision, mark = mark, nominal = nominal, new_mark = new_mark,
    next = next ~= '-' and next or '', missed = missed, why = why, name = name, id = id, n = n, policy = policy,
    group = group, data = data }
  return true
end
