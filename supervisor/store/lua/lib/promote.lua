-- Library of the turn: what is due becomes ready.
-- Includes  run
local PROMOTE_MAX = 64

-- Put ids that became ready into their lists: those of `heads` in front, the first one first.
local function make_ready(heads, tails)
  for list, ids in pairs(heads) do
    local turned = {}
    for n = #ids, 1, -1 do
      turned[#turned + 1] = ids[n]
    end
    redis.call('LPUSH', list, unpack(turned))
  end
  for list, ids in pairs(tails) do
    redis.call('RPUSH', list, unpack(ids))
  end
end

local function add(lists, list, id)
  lists[list] = lists[list] or {}
  table.insert(lists[list], id)
end

-- A foreign key in one queue must not hide what was taken from another, or stop what was acknowledged from being recorded:
-- its error is told at the end, and only by a turn that did nothing else.
local failed
local function read(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply['err'] then
    failed = failed or reply['err']
    return nil
  end
  return reply
end

-- Promote what is due. A retry, or a run that came too early for its rate, is older than what waits: it goes to the head.
-- One that asked to run again, and has not failed, goes to the tail: what waits may be what it waits for.
-- One that crashed its worker goes on alone, so that it takes no neighbours with it.
-- Returns when the next one is due: false for none, or where a foreign key is in the way; nil where that is not known.
local function promote(queue, now)
  local later = keys.later(queue)
  local head = read('ZRANGE', later, 0, 0, 'WITHSCORES')
  local first = head and tonumber(head[2] or nil)
  if not first or first > now then return first or false end
  local due = redis.call('ZRANGEBYSCORE', later, '-inf', whole(now), 'LIMIT', 0, PROMOTE_MAX)
  local data, att = read('HMGET', keys.data(queue), unpack(due)), read('HMGET', keys.att(queue), unpack(due))
  if not data or not att then return false end
  local heads, tails, newer, gone, bells = {}, {}, {}, {}, { a = 0, s = 0 }
  for n, id in ipairs(due) do
    if data[n] then
      local head, header = head_of(data[n]), header_of(data[n])
      local kind = string.sub(head, 1, 1)
      local attempts, crashes = charges(att[n])
      if crashes > 0 then
        add(tails, keys.suspect(queue, kind), id)
      else
        add((attempts > 0 or (header and limits_in(header).rate)) and heads or tails, ready(queue, head), id)
        if header and not att[n] then
          newer[#newer + 1] = n
        end
      end
      bells[kind] = bells[kind] + 1
    else
      gone[#gone + 1] = id
    end
  end
  for _, lists in ipairs({ heads, tails }) do
    for list in pairs(lists) do
      if not read('LLEN', list) then return false end
    end
  end
  for _, id in ipairs(gone) do
    forget(queue, '', id)
  end
  for _, n in ipairs(newer) do
    replace_older(queue, due[n], data[n])
  end
  make_ready(heads, tails)
  redis.call('ZREMRANGEBYRANK', later, 0, #due - 1) -- just these: the earliest come first
  ring(queue, 'a', math.min(bells.a, 4))
  ring(queue, 's', math.min(bells.s, 4))
  return nil
end
