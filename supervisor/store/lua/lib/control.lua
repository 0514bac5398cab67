-- Library: what every change of a schedule does alike.
-- A change writes its data, then asks the leader to look (`evaluate` in lib/live.lua). Only the leader computes when a
-- schedule is due next.
-- Includes  limits
--           live

-- Raise, before the first write, if a key that a change writes holds another type.
local function check_plan()
  for _, hash in ipairs({ keys.schedule_def, keys.schedule_mark, keys.schedule_paused, keys.schedule_state, keys.schedule_wait,
    keys.schedule_gone, keys.schedule_live, keys.schedule_sets, keys.schedule_invalid, keys.schedule_after }) do
    redis.call('HLEN', hash)
  end
  redis.call('ZCARD', keys.schedule_next)
end

-- From here on no set is in place whole, not the former one either. A part is counted if the one before it is there, so
-- that the end notices one that is not any more, since Redis went back.
local function begin_part(part)
  redis.call('HDEL', keys.schedule_sets, '#applied')
  local begun, number = string.match(part, '^(%d+) (%d+)$')
  if begun and redis.call('HGET', keys.schedule_sets, '#parts') == begun .. ' ' .. whole(number - 1) then
    redis.call('HSET', keys.schedule_sets, '#parts', part)
  end
end

-- Revision, timing digest, set and JSON of a stored definition; nothing for one that cannot be read.
local function definition_of(record)
  local revision, timing, set, json = string.match(record or '', '^(%d+)\n(%x+)\n([^\n]*)\n(.*)$')
  if natural(revision) then return moment(revision), timing, set, json end
end

-- Why a request that was judged by `revision` (empty: any) must not change the schedule of `record`; nil if it may.
local function judged(record, revision)
  if not record then return 'UNKNOWN' end
  return revision ~= '' and definition_of(record) ~= revision and 'STALE' or nil
end

local function tell(kind, id)
  inform('XADD', keys.schedule_changes, 'MAXLEN', '~', CHANGES_MAX, '*', 'kind', kind, 'schedule', id)
end

local function is_top_level(json, name, wanted)
  local is_read, value = pcall(cjson.decode, json or '')
  return is_read and type(value) == 'table' and value[name] == wanted
end

-- Let the leader look at a schedule: at once, or when its pause ends by itself, or not at all. One that ends soon it is asked
-- about at once: it has read some seconds ahead (AHEAD_MS in roles/scheduler/window.py), and would not read that time again.
local SOON_MS = 30000
local function look_at(id, kind, now)
  local paused = redis.call('HGET', keys.schedule_paused, id)
  local ends = end_of(paused)
  if not paused or (ends and ends <= now + SOON_MS) then
    return evaluate(id, kind, now)
  elseif ends then
    redis.call('ZADD', keys.schedule_next, whole(ends), id)
  else
    redis.call('ZREM', keys.schedule_next, id)
  end
  tell(kind, id)
end

local function mark_of(id)
  return natural(redis.call('HGET', keys.schedule_mark, id)) or 0
end

-- Failed runs in a row are counted anew from the end of a pause on: those that were under way may have failed in it.
local function count_failures_anew(id)
  local state = redis.call('HGET', keys.schedule_state, id) or ''
  local numbers = counters(state)
  if numbers[7] > 0 then
    numbers[7] = 0
    redis.call('HSET', keys.schedule_state, id, with_counters(state, numbers))
  end
end

local function pause_of(reason, by, until_ms, now)
  return '{"reason":' .. cjson.encode(reason) .. ',"by":' .. cjson.encode(by) .. ',"at_ms":' .. whole(now)
    .. (until_ms == '' and '' or ',"until_ms":' .. until_ms) .. '}'
end

-- A schedule that is to be looked at later has nothing undecided: else what was due until the pause began is owed when it is
-- over. In the place of another pause, it began with that one.
local function pause(id, reason, by, until_ms, now)
  local former = redis.call('HGET', keys.schedule_paused, id)
  local is_behind = not former and tonumber(redis.call('ZSCORE', keys.schedule_next, id) or '0') <= now and mark_of(id) < now
  local paused = with_due(pause_of(reason, by, until_ms, now), due_of(former) or is_behind and now)
  redis.call('HSET', keys.schedule_paused, id, paused)
end

-- A suspension ends when its plugin works, so nobody's pause gives way to it.
local function is_suspension(paused)
  return string.find(paused, '"by":"plugin ', 1, true) ~= nil
end

local function is_by_definition(paused)
  return string.find(paused, '"by":"definition"', 1, true) ~= nil
end

-- The pause that goes on beside the definition's, and ends by itself; nil: none.
local function beside(paused)
  local is_read, value = pcall(cjson.decode, paused)
  return is_read and type(value) == 'table' and type(value['beside']) == 'string' and value['beside'] or nil
end

-- Let `other` go on beside the definition's pause. JSON in JSON: its end is not read as the end of both.
local function put_beside(id, other)
  local paused = redis.call('HGET', keys.schedule_paused, id)
  local own = string.match(paused, '^(.-),"beside":') or string.sub(paused, 1, -2)
  redis.call('HSET', keys.schedule_paused, id, own .. ',"beside":' .. cjson.encode(other) .. '}')
end

-- The time that passed in a pause does not count as missed, unless the schedule asks for it. What waits for its jitter is due
-- later than that, what was due before the pause is owed, and only the leader can tell when: to such a schedule it leaves a
-- pause that has ended. Nothing waits for longer than its jitter.
local function end_pause(id, json, at)
  local is_skipped = not is_top_level(json, 'on_resume', 'catchup')
  local jitter = is_skipped and natural(string.match(json or '', '"jitter_ms":(%d+)'))
  local due = is_skipped and due_of(redis.call('HGET', keys.schedule_paused, id))
  if is_skipped and not due then
    redis.call('HSET', keys.schedule_mark, id, whole(math.max(mark_of(id), at - (jitter or 0))))
  end
  if jitter or due then
    pause(id, '', '', whole(at), at)
    return
  end
  redis.call('HDEL', keys.schedule_paused, id)
  count_failures_anew(id)
  expect_anew(id, at)
end

-- End the pause `paused` of the schedule of `record`. One that ended by itself ended then, however late this comes: what is
-- due since is owed.
local function resume(id, record, paused, now)
  local ends, json = end_of(paused), select(4, definition_of(record))
  end_pause(id, json, ends ~= nil and ends <= now and ends or now)
  look_at(id, 'resume', now)
end

-- Unfinished runs of a schedule.
local function unfinished(id)
  return unfinished_of(redis.call('HGET', keys.schedule_live, id))
end

-- Enqueue a run beside the plan; false if a run of this id is unfinished or dead, or if another holds its unique key.
local function start(queue, run, data)
  return (admit(queue, run, data, 0, HISTORY_MAX))
end

-- Keep the list of those that follow a schedule, when the definition of one of them changes from `old_json` to `json`.
local function list_follower(id, old_json, json)
  local old, new = followed_by(old_json), followed_by(json)
  for _, followed in pairs(old ~= new and { old or new, new } or {}) do
    local kept = {}
    for name in string.gmatch(redis.call('HGET', keys.schedule_after, followed) or '', '[^\n]+') do
      kept[#kept + 1] = name ~= id and name or nil
    end
    if followed == new then
      kept[#kept + 1] = id
    end
    if #kept == 0 then
      redis.call('HDEL', keys.schedule_after, followed)
    else
      redis.call('HSET', keys.schedule_after, followed, table.concat(kept, '\n'))
    end
  end
end

-- Keep what a schedule expects of its runs, as its definition says; a new one is counted from now.
local function list_expectations(id, json, now)
  local every, is_within = 0, false
  if string.find(json, '"expect_success_every_ms":', 1, true) or string.find(json, '"finish_within_ms":', 1, true) then
    local is_read, definition = pcall(cjson.decode, json)
    every = is_read and tonumber(definition['expect_success_every_ms']) or 0
    is_within = is_read and definition['finish_within_ms'] ~= nil
  end
  if every == 0 and not is_within then
    if inform('HDEL', keys.schedule_expected, id) == 1 then
      inform('ZREM', keys.schedule_promised, id, '!' .. id, '+' .. id)
    end
    return
  end
  local of = expected_of(id) or { since = now, ok = 0, ok_nominal = 0, late = 0 }
  if every == 0 then
    inform('ZREM', keys.schedule_promised, id)
  elseif of.every ~= every or not inform('ZSCORE', keys.schedule_promised, id) then
    inform('ZADD', keys.schedule_promised, whole(of.since + every), id)
  end
  if of.late > 0 then -- also under a new name
    inform('ZADD', keys.schedule_promised, LATE_MS, '!' .. id)
  end
  of.every = every
  expected_put(id, of)
end
