-- Library: bringing in one definition, static or dynamic: what an edit does to watermark, pause and counters.
-- A definition is ten arguments from ARGV[i] on: id, timing digest, expected revision (or empty), former id (or empty),
-- seen revision and the lowest watermark that a change of timing may set (`revision:mark`, or empty), `p` and a reason
-- when it starts paused (else empty), queue, data of the extra run that a change of its timing causes (or empty),
-- definition, runs that may be unfinished without being listed (`queue id` lines, oldest first; or empty).
--
-- Includes  control
local DEFINITION_FIELDS = 10

-- Return what is wrong with the definition at ARGV[i], before the first write.
local function fault(i)
  if ARGV[i] == '' or not string.match(ARGV[i + 1], '^%x+$') or not string.match(ARGV[i + 2], '^%d*$')
    or not (ARGV[i + 4] == '' or string.match(ARGV[i + 4], '^%d+:%d+$')) or ARGV[i + 8] == '' then
    return 'definition ' .. ARGV[i]
  end
  if ARGV[i + 7] ~= '' then
    if not is_head(ARGV[i + 7]) or ARGV[i + 6] == '' then
      return 'extra run of ' .. ARGV[i]
    end
    check_types(ARGV[i + 6], string.sub(ARGV[i + 7], 1, 3))
  end
  return nil
end

-- A schedule that exists begins with no run any more: who asks for one by an edit is too late.
local function begin_without(i, old_json)
  local id, json = ARGV[i], ARGV[i + 8]
  if string.find(json, '"run_on_create"', 1, true) and is_top_level(json, 'run_on_create', true)
    and not is_top_level(old_json, 'run_on_create', true) then
    local state = redis.call('HGET', keys.schedule_state, id) or ''
    local numbers = counters(state)
    numbers[12] = 1
    redis.call('HSET', keys.schedule_state, id, with_counters(state, numbers))
  end
end

-- A new schedule starts at now: it owes nothing for the time before. A watermark that is there without a definition was
-- written by a leader after Redis lost its data, and stays. Revisions go on where a former life ended.
local function add(i, set, now)
  local id, timing = ARGV[i], ARGV[i + 1]
  local memory = inherit(id, ARGV[i + 3], set == 'dynamic', now)
  local mark, seeded = now, redis.call('HGET', keys.schedule_mark, id)
  if memory and (memory.is_direct or memory.at >= now - REMEMBERED_MS) then
    mark = memory.is_direct and memory.timing == timing and memory.mark or math.max(memory.mark, now)
    if memory.state ~= '' then
      local numbers = counters(memory.state)
      numbers[8] = redis.call('LLEN', keys.schedule_buffer(id))
      redis.call('HSET', keys.schedule_state, id, with_counters(memory.state, numbers))
    end
    if memory.paused ~= '' then
      redis.call('HSET', keys.schedule_paused, id, memory.paused)
    end
    begin_without(i, nil)
  end
  redis.call('HSET', keys.schedule_mark, id, seeded or whole(mark))
  return whole((memory and memory.revision or 0) + 1)
end

-- Under `allow` no list of unfinished runs is kept: a policy that needs one begins with those that are still there.
local function list_runs(i)
  local id, listed = ARGV[i], unfinished(ARGV[i])
  local seen = {}
  for _, line in ipairs(listed) do
    seen[line] = true
  end
  for line in string.gmatch(ARGV[i + 9], '[^\n]+') do
    local queue, run = string.match(line, '^(%S+) (%S+)$')
    if queue and not seen[line] and redis.call('HEXISTS', keys.data(queue), run) == 1
      and not redis.call('ZSCORE', keys.dead(queue), run) then
      listed[#listed + 1] = line
    end
  end
  if #listed > 0 then
    redis.call('HSET', keys.schedule_live, id, table.concat(listed, '\n'))
  end
end

-- The run that a change of the timing causes. As many unfinished ones as may be keep it from being enqueued, and it
-- counts for later ones, as a due run does.
local function start_changed(i)
  local id, queue = ARGV[i], ARGV[i + 6]
  local run, definition = id .. '!changed!' .. ARGV[i + 1], cjson.decode(ARGV[i + 8])
  if definition['overlap'] == 'allow' then
    start(queue, run, ARGV[i + 7])
    return
  end
  local lines = unfinished(id)
  if #lines >= (definition['max_running'] or 1) then
    local state = redis.call('HGET', keys.schedule_state, id) or ''
    local numbers = counters(state)
    numbers[2] = numbers[2] + 1
    redis.call('HSET', keys.schedule_state, id, with_counters(state, numbers))
  elseif start(queue, run, ARGV[i + 7]) then
    lines[#lines + 1] = queue .. ' ' .. run
    redis.call('HSET', keys.schedule_live, id, table.concat(lines, '\n'))
  end
end

-- The new due times count from now, never from before. One nominal time may be kept: that which the caller saw wait
-- for its jitter, under this very revision.
local function retime(i, revision, now)
  local id, seen, floor = ARGV[i], string.match(ARGV[i + 4], '^(%d+):(%d+)$')
  local from = seen == revision and math.min(tonumber(floor), now) or now
  redis.call('HSET', keys.schedule_mark, id, whole(math.max(mark_of(id), from)))
  if ARGV[i + 7] ~= '' and redis.call('HEXISTS', keys.schedule_paused, id) == 0 then
    start_changed(i)
  end
end

-- A definition that says `paused` pauses when it begins to say so: whoever resumes it is not overruled by a reload.
local function pause_by_definition(i, old_json, now)
  local id, paused = ARGV[i], redis.call('HGET', keys.schedule_paused, ARGV[i])
  if ARGV[i + 5] ~= '' then
    if not paused and not is_top_level(old_json, 'paused', true) then
      pause(id, string.sub(ARGV[i + 5], 2), 'definition', '', now)
    end
  elseif paused and string.find(paused, '"by":"definition"', 1, true) then
    end_pause(id, ARGV[i + 8], now)
  end
end

-- Bring in the definition at ARGV[i]; return its code and its revision.
local function define(i, set, now)
  local id, timing, expected, json = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 8]
  local revision, old_timing, old_set, old_json = parts(redis.call('HGET', keys.schedule_def, id))
  if revision and (old_set == 'dynamic') ~= (set == 'dynamic') then
    return 'CLASH', revision
  end
  if old_json == json then
    return 'UNCHANGED', revision
  end
  if expected ~= '' and expected ~= (revision or '0') then
    return 'CONFLICT', revision or '0'
  end
  local code, new_revision = 'CREATED', nil
  if not revision then
    new_revision = add(i, set, now)
  else
    code, new_revision = 'CHANGED', whole(tonumber(revision) + 1)
    redis.call('HDEL', keys.schedule_invalid, id)
    begin_without(i, old_json)
    if ARGV[i + 9] ~= '' then
      list_runs(i)
    end
    if timing ~= old_timing then
      retime(i, revision, now)
    end
  end
  redis.call('HSET', keys.schedule_def, id, new_revision .. '\n' .. timing .. '\n' .. set .. '\n' .. json)
  pause_by_definition(i, old_json, now)
  look_at(id, set == 'dynamic' and 'upsert' or 'declare', now)
  return code, new_revision
end
