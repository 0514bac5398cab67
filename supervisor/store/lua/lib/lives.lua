-- Library: what a removed schedule leaves for a day, and what one that is added takes over from it or from its former name.
-- Includes  control
local REMEMBERED_MS, PURGE_COUNT = 86400000, 100
local FLOOR_MS = 7776000000 -- 90 days, as a tree of runs is remembered

-- Before a schedule loses its own times: what it decided by them, the ends of others do not make due again. `json`: its
-- definition until now. The floor stands still while it follows: those ends come in any order.
local function keep_floor(id, json, keep_ms)
  if json and not followed_by(json) then
    redis.call('SET', keys.ran(id .. '@'), whole(mark_of(id)), 'PX', keep_ms)
  end
end

-- A schedule that begins, and was removed or renamed before, may follow others now.
local function inherit_floor(id, former)
  local floor = 0
  for name in string.gmatch(id .. '\n' .. former .. '\n' .. former_names(id), '[^\n]+') do
    floor = math.max(floor, tonumber(redis.pcall('GET', keys.ran(name .. '@'))) or 0)
  end
  if floor > 0 then
    redis.call('SET', keys.ran(id .. '@'), whole(floor), 'PX', FLOOR_MS)
  end
end

-- What it waited for, and that it was completed, is no fact of a new life.
local function settled(state)
  if state == '' then return state end
  local numbers = counters(state)
  numbers[9], numbers[10], numbers[11] = 0, 0, 0
  return with_counters(state, numbers)
end

-- What another schedule can take over from one that is stored.
local function life_of(id, now)
  local revision, timing, _, json = definition_of(redis.call('HGET', keys.schedule_def, id))
  return { at = now, revision = tonumber(revision or 0), mark = mark_of(id), timing = timing or '0', json = json,
    is_to_pause = string.find(json or '', '"paused":true', 1, true) ~= nil and is_top_level(json, 'paused', true),
    paused = redis.call('HGET', keys.schedule_paused, id) or '', state = redis.call('HGET', keys.schedule_state, id) or '' }
end

-- Take a schedule out, and remember for a day what adding it again restores. Runs that are unfinished go on.
-- A memory: at, revision, watermark, timing digest and the length of the pause, with a zero before it if the definition says
-- `paused`; then the pause and the state. `is_over`: it was completed, and what begins under its id is another one; the digest
-- says so, as no timing has this one.
local OVER = '00'
local function bury(id, now, is_over)
  local life = life_of(id, now)
  list_follower(id, life.json, nil)
  keep_floor(id, life.json, REMEMBERED_MS)
  list_expectations(id, '', now)
  redis.call('HSET', keys.schedule_gone, id, whole(now) .. ' ' .. whole(life.revision) .. ' ' .. whole(life.mark) .. ' '
    .. (is_over and OVER or life.timing) .. ' ' .. (life.is_to_pause and not is_over and '0' or '') .. whole(#life.paused) .. '\n'
    .. life.paused .. settled(life.state))
  for _, hash in ipairs({ keys.schedule_def, keys.schedule_mark, keys.schedule_paused, keys.schedule_state, keys.schedule_wait,
    keys.schedule_invalid }) do
    redis.call('HDEL', hash, id)
  end
  redis.call('ZREM', keys.schedule_next, id)
  redis.call('DEL', keys.schedule_buffer(id))
  return life
end

local function recall(memory)
  local at, revision, mark, timing, size, rest = string.match(memory or '', '^(%d+) (%d+) (%d+) (%x+) (%d+)\n(.*)$')
  if not at then return nil end
  local length = tonumber(size)
  return { at = tonumber(at), revision = tonumber(revision), mark = tonumber(mark), timing = timing,
    is_to_pause = string.find(size, '^0%d') ~= nil, is_over = timing == OVER,
    paused = string.sub(rest, 1, length), state = string.sub(rest, length + 1) }
end

-- Whether a run that began under this name goes on, as far as runs are listed; after a rename, in the list of the new one.
-- Those that are not listed, as below a run that ended, may end under a former name for as long as a tree is remembered.
local function has_runs(id, is_recent)
  local lines, _, former = live_lines(id)
  if #former > 0 and is_recent then return true end
  for _, line in ipairs(unfinished_of(lines or '')) do
    if #former == 0 or string.match(line, '^%S+ ([^@!]+)') == id then return true end
  end
  return false
end

-- The highest revision of those that are remembered no more. New ones begin above it: a leader that did not hear of a
-- removal, since the stream of changes was trimmed, takes no other definition for the one that it knows.
local function forgotten_revision()
  return natural(redis.call('HGET', keys.schedule_sets, '#forgotten')) or 0
end

-- Forget some of what was remembered for longer than a day: as many as one removal adds, so that they never pile up.
local function purge(now, rounds)
  local sets, gone = keys.schedule_sets, keys.schedule_gone
  local cursor, forgotten = redis.call('HGET', sets, '#purge') or '0', forgotten_revision()
  for _ = 1, rounds do
    local page = redis.call('HSCAN', gone, cursor, 'COUNT', PURGE_COUNT)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local memory = recall(page[2][i + 1])
      if not memory or memory.at < now - REMEMBERED_MS then
        if not has_runs(page[2][i], memory and memory.at >= now - FLOOR_MS) then
          forgotten = math.max(forgotten, memory and memory.revision or 0)
          redis.call('HDEL', gone, page[2][i])
          redis.call('HDEL', keys.schedule_live, page[2][i])
        elseif memory and memory.paused .. memory.state ~= '' then -- nothing restores these any more
          redis.call('HSET', gone, page[2][i], string.match(page[2][i + 1], '^%d+ %d+ %d+ %x+ ') .. '0\n')
        end
      end
    end
    if cursor == '0' then break end
  end
  redis.call('HSET', sets, '#purge', cursor, '#forgotten', whole(forgotten))
end

-- A schedule that was called `former` has a new name: what ran beside the plan is remembered by ids that have the old one.
local NAMES_MAX, NAMES_MS = 8, 604800000 -- as long as what a backfill enqueued
local function keep_name(schedule, former)
  local names, count = {}, 0
  for name in string.gmatch(former .. '\n' .. former_names(former), '[^\n]+') do
    if name ~= schedule and count < NAMES_MAX then
      count = count + 1
      names[count] = name
    end
  end
  names_of[schedule] = table.concat(names, '\n')
  redis.call('SET', keys.ran(schedule .. '@<'), names_of[schedule], 'PX', NAMES_MS)
end

-- Another schedule went on from `former`: for a day, that one may come back and go on from it.
local function keep_successor(former, id)
  redis.call('SET', keys.ran(former .. '@>'), id, 'PX', REMEMBERED_MS)
end

local function successor_of(former)
  return inform('GET', keys.ran(former .. '@>'))
end

local function job_of(json)
  local is_read, definition = pcall(cjson.decode, json or '')
  local template = is_read and type(definition) == 'table' and definition['template']
  return type(template) == 'table' and template['job'] or nil
end

-- The latest life of a schedule that comes back, `own` or nil the one under this name: a rename that is rolled back goes on
-- from what the new name did meanwhile, be it still there or removed. Where that one is there and this does something else,
-- or at other times, the name was only used again.
local function latest_life(d, own, now)
  local id, life, name = d.id, own, successor_of(d.id)
  if own and own.is_over then return own end -- what begins is another one, whatever it was called meanwhile
  for _ = 1, NAMES_MAX do
    local is_there = name and redis.call('HEXISTS', keys.schedule_def, name) == 1
    local later = is_there and life_of(name, now) or recall(name and redis.call('HGET', keys.schedule_gone, name))
    if not later or later.at < (life and life.at or 0) then break end
    local is_other = is_there and job_of(later.json) ~= job_of(d.json)
    if is_other and life then
      life.is_to_pause = false -- whoever resumed it meant what goes on under the new name
    end
    if is_other or is_there and later.timing ~= d.timing then break end
    keep_name(id, name)
    later.state = settled(later.state)
    life, name = later, not is_there and successor_of(name)
  end
  if life then
    life.revision = own and own.revision or forgotten_revision()
  end
  return life
end

-- Let `id` take over all of `renamed`, which is taken out.
local function take_over(id, renamed, now)
  for _, nominal in ipairs(redis.call('LRANGE', keys.schedule_buffer(renamed), 0, -1)) do
    redis.call('RPUSH', keys.schedule_buffer(id), nominal)
  end
  local lines = redis.call('HGET', keys.schedule_live, renamed)
  lines = lines and not string.find(lines, '^>') and lines
  if lines then
    redis.call('HSET', keys.schedule_live, id, lines)
  end
  -- Runs that began under another name end under it: leave word of what they belong to now (see live_lines in live).
  redis.call('HSET', keys.schedule_live, renamed, '>' .. id)
  local expected = inform('HGET', keys.schedule_expected, renamed)
  if expected then
    inform('HSET', keys.schedule_expected, id, expected)
  end
  local life = bury(renamed, now)
  tell('remove', renamed)
  return life
end

-- What a new schedule goes on from: its own former life, or the one that it was called before. That one stays remembered: its
-- revisions go on, and a rename that is rolled back finds what was remembered.
local function inherit(d, is_dynamic, now)
  local id, renamed = d.id, d.former
  local own = recall(redis.call('HGET', keys.schedule_gone, id))
  redis.call('HDEL', keys.schedule_gone, id)
  if string.find(redis.call('HGET', keys.schedule_live, id) or '', '^>') then
    redis.call('HDEL', keys.schedule_live, id) -- runs of this name are its own again
  end
  local life, is_direct
  if renamed ~= '' and renamed ~= id then
    local _, _, set = definition_of(redis.call('HGET', keys.schedule_def, renamed))
    is_direct = set ~= nil and (set == 'dynamic') == is_dynamic
    life = is_direct and take_over(id, renamed, now) or recall(redis.call('HGET', keys.schedule_gone, renamed))
  end
  local is_own = own and not is_direct and life and own.at >= life.at -- it went on from that one before
    and (successor_of(renamed) == id or life.at < now - REMEMBERED_MS)
  if not life or is_own then return latest_life(d, own, now) end
  keep_name(id, renamed)
  keep_successor(renamed, id)
  redis.call('DEL', keys.ran(id .. '@>'))
  life.is_direct, life.revision = is_direct, math.max(life.revision, own and own.revision or forgotten_revision())
  return life
end
