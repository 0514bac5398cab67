-- Library: bringing in one definition, static or dynamic: what an edit does to watermark, pause and counters.
-- A definition is ten arguments; what may be empty is in brackets.
--
--   id         of the schedule
--   timing     digest of what its due times follow from
--   expected   [revision that is to be replaced; 0: none]
--   former     [id that it had]
--   floor      [`revision:mark`: the revision that was seen, and the lowest watermark that a change of timing may set]
--   pause      [`p` and a reason: it starts paused]
--   queue      [of the extra run]
--   extra      [data of the run that a change of its timing causes]
--   json       the definition
--   unlisted   [runs that may be unfinished without being listed: `queue id` lines, oldest first]
-- Includes  lives
local DEFINITION_FIELDS, FOLLOWERS_MAX = 10, 100

local function definition_at(i)
  return { id = ARGV[i], timing = ARGV[i + 1], expected = ARGV[i + 2], former = ARGV[i + 3], floor = ARGV[i + 4],
    pause = ARGV[i + 5], queue = ARGV[i + 6], extra = ARGV[i + 7], json = ARGV[i + 8], unlisted = ARGV[i + 9] }
end

-- Return what is wrong with the definition at ARGV[i], before the first write.
local function fault(i)
  local d = definition_at(i)
  if d.id == '' or not string.match(d.timing, '^%x+$') or not string.match(d.expected, '^%d*$')
    or not (d.floor == '' or string.match(d.floor, '^%d+:%d+$')) or d.json == '' then
    return 'definition ' .. d.id
  end
  local followed = followed_by(d.json)
  local others = 0
  for name in string.gmatch(followed and redis.call('HGET', keys.schedule_after, followed) or '', '[^\n]+') do
    others = others + (name ~= d.id and name ~= d.former and 1 or 0)
  end
  if others >= FOLLOWERS_MAX then return d.id .. ': 100 others follow ' .. followed end
  if d.extra ~= '' then
    if not is_head(d.extra) or d.queue == '' then return 'extra run of ' .. d.id end
    check_types(d.queue, string.sub(d.extra, 1, 3))
    redis.call('ZCARD', keys.dead(d.queue)) -- an earlier one may have to make room
    redis.call('HLEN', keys.att(d.queue))
  end
  return nil
end

-- Whether a schedule is completed by `max_runs` of this definition.
local function is_spent(state, json)
  local numbers = counters(state)
  if numbers[11] == 0 then return false end
  local is_read, definition = pcall(cjson.decode, json)
  local runs = is_read and type(definition) == 'table' and tonumber(definition['max_runs'])
  return runs and numbers[1] >= runs
end

-- Whether a definition begins with a run.
local function has_initial(json)
  return string.find(json, '"run_on_create"', 1, true) and is_top_level(json, 'run_on_create', true)
end

-- A schedule that exists begins with no run any more: who asks for one by an edit is too late.
local function begin_without(d, old_json)
  local id, json = d.id, d.json
  if has_initial(json) and not is_top_level(old_json, 'run_on_create', true) then
    local state = redis.call('HGET', keys.schedule_state, id) or ''
    local numbers = counters(state)
    numbers[12] = 1
    redis.call('HSET', keys.schedule_state, id, with_counters(state, numbers))
  end
end

-- A new schedule starts at now: it owes nothing for the time before. A watermark that is there without a definition was
-- written by a leader after Redis lost its data, and stays. Revisions go on where a former life ended.
local function add(d, set, now)
  local id, timing = d.id, d.timing
  local memory = inherit(d, set == 'dynamic', now)
  local mark, seeded, was_to_pause = now, redis.call('HGET', keys.schedule_mark, id), false
  if memory and (memory.is_direct or memory.at >= now - REMEMBERED_MS) then
    local is_kept = memory.is_direct and memory.timing == timing and not is_spent(memory.state, memory.json)
    mark = is_kept and memory.mark or math.max(memory.mark + (memory.is_over and 1 or 0), now)
    if memory.state ~= '' then
      local numbers = counters(memory.state)
      numbers[8], numbers[11] = redis.call('LLEN', keys.schedule_buffer(id)), 0
      redis.call('HSET', keys.schedule_state, id, with_counters(memory.state, numbers))
    end
    if memory.paused ~= '' then
      redis.call('HSET', keys.schedule_paused, id, memory.paused)
    end
    was_to_pause = memory.is_to_pause
    if not memory.is_over then
      begin_without(d, nil)
    elseif has_initial(d.json) then -- who remembers the watermark of the former life must not take this for a loss of data
      local numbers = counters('')
      numbers[12] = 2
      redis.call('HSET', keys.schedule_state, id, with_counters('', numbers))
    end
  end
  if followed_by(d.json) then
    inherit_floor(id, d.former)
  end
  if moment(seeded) then -- what was decided until then is not known any more: all of it may have run, for a backfill
    local unknown = '\nMl0 ' .. moment(seeded) .. ' 0 ' .. whole(now - tonumber(seeded)) .. ' 0'
    redis.call('HSETNX', keys.schedule_state, id, with_counters(unknown, counters('')))
    if d.pause ~= '' then -- it was paused while the data was away: none of that time is owed
      redis.call('HSETNX', keys.schedule_paused, id, pause_of(string.sub(d.pause, 2), 'definition', '', now))
    end
  end
  redis.call('HSET', keys.schedule_mark, id, moment(seeded) or whole(mark))
  return whole((memory and memory.revision or forgotten_revision()) + 1), was_to_pause
end

-- Under `allow` no list of unfinished runs is kept: a policy that needs one begins with those that are still there, also
-- with those of former definitions that left them in the list.
local LISTED_MAX = 1000
local function list_runs(d)
  local id, listed = d.id, unfinished(d.id)
  local seen = {}
  for _, line in ipairs(listed) do
    seen[line] = true
  end
  for _, line in ipairs(unfinished_of(d.unlisted)) do
    listed[#listed + 1] = not seen[line] and line or nil
  end
  if #listed > 0 then
    redis.call('HSET', keys.schedule_live, id, table.concat(listed, '\n', math.max(1, #listed - LISTED_MAX + 1)))
  end
end

-- The run that a change of the timing causes. As many unfinished ones as may be keep it from being enqueued, and so does
-- that of an earlier change to the same timing; it counts for later ones, as a due run does.
local function start_changed(d)
  local id, queue = d.id, d.queue
  local run, definition = id .. '!changed!' .. d.timing, cjson.decode(d.json)
  local is_listed = definition['overlap'] ~= 'allow'
  local lines = is_listed and unfinished(id) or {}
  local is_free, spent = not is_listed or #lines < (definition['max_running'] or 1), 0
  if is_free then
    is_free, spent = is_vacant(queue, run, id, redis.call('HGET', keys.data(queue), run))
  end
  if not is_free then
    local state = redis.call('HGET', keys.schedule_state, id) or ''
    local numbers = counters(state)
    numbers[2] = numbers[2] + 1
    redis.call('HSET', keys.schedule_state, id, with_counters(state, numbers))
  elseif start(queue, run, d.extra) then
    keep_spent(queue, run, spent)
    if is_listed then
      lines[#lines + 1] = queue .. ' ' .. run
      redis.call('HSET', keys.schedule_live, id, table.concat(lines, '\n'))
    end
  end
end

-- The new due times count from now, never from before. One nominal time may be kept: that which the caller saw wait
-- for its jitter, under this very revision.
local function retime(d, revision, now)
  local id, seen, floor = d.id, string.match(d.floor, '^(%d+):(%d+)$')
  local from = seen == revision and math.min(tonumber(floor), now) or now
  redis.call('HSET', keys.schedule_mark, id, whole(math.max(mark_of(id), from)))
  if d.extra ~= '' and not is_paused(id, now) then
    start_changed(d)
  end
end

-- A definition that says `paused` pauses when it begins to say so: whoever resumes it is not overruled by a reload, nor by a
-- rename. A person's pause that ends by itself goes on beside it.
local function pause_by_definition(d, old_json, was_to_pause, now)
  local id, paused = d.id, redis.call('HGET', keys.schedule_paused, d.id)
  if d.pause ~= '' then
    if (not paused or end_of(paused)) and not (was_to_pause or is_top_level(old_json, 'paused', true)) then
      pause(id, string.sub(d.pause, 2), 'definition', '', now)
      if paused and not is_suspension(paused) then
        put_beside(id, paused)
      end
    end
  elseif paused and is_by_definition(paused) then
    local other = beside(paused)
    if (end_of(other) or 0) > now then
      redis.call('HSET', keys.schedule_paused, id, with_due(other, due_of(paused)))
    else
      end_pause(id, d.json, now)
    end
  end
end

-- Bring in the definition at ARGV[i]; return its code and its revision.
local function define(i, set, now)
  local d = definition_at(i)
  local id, timing, expected, json = d.id, d.timing, d.expected, d.json
  local revision, old_timing, old_set, old_json = definition_of(redis.call('HGET', keys.schedule_def, id))
  if revision and (old_set == 'dynamic') ~= (set == 'dynamic') then return 'CLASH', revision end
  if old_json == json then return 'UNCHANGED', revision end
  if expected ~= '' and expected ~= (revision or '0') then return 'CONFLICT', revision or '0' end
  local code, new_revision, was_to_pause = 'CREATED', nil, false
  if not revision then
    new_revision, was_to_pause = add(d, set, now)
  else
    code, new_revision = 'CHANGED', whole(tonumber(revision) + 1)
    redis.call('HDEL', keys.schedule_invalid, id)
    begin_without(d, old_json)
  end
  if d.unlisted ~= '' then
    list_runs(d)
  end
  if revision and timing ~= old_timing then
    if followed_by(json) then
      keep_floor(id, old_json, FLOOR_MS)
    end
    retime(d, revision, now)
  end
  if revision and is_spent(redis.call('HGET', keys.schedule_state, id) or '', old_json) then -- if this lets it go on, what was due meanwhile is not made up for
    redis.call('HSET', keys.schedule_mark, id, whole(math.max(mark_of(id), now)))
  end
  list_follower(id, old_json, json)
  list_expectations(id, json, now)
  redis.call('HSET', keys.schedule_def, id, new_revision .. '\n' .. timing .. '\n' .. set .. '\n' .. json)
  pause_by_definition(d, old_json, was_to_pause, now)
  look_at(id, set == 'dynamic' and 'upsert' or 'declare', now)
  return code, new_revision
end
