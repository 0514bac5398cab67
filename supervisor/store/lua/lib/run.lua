-- Library: the end of a run, and all that it causes: it frees what the run held, and is told to those who wait for it
-- (adr/0047); and what became of the runs below a run is counted, and what waits for the end of all of them starts (adr/0030).
--
--   awaited               hash    id of an unfinished run to the bells of those who wait for its end, parted by spaces
--   rung:<bell>           list    expires: ids of awaited runs that ended
--   ended:<run>           string  expires: JSON of how an awaited run ended; a later life of its id removes it
--   tally:<id>            hash    expires: what became of the runs below a run, those that it spawned and those that they
--                                 did. total and left; how many ended ok, dead, cancelled …; c:<name> what they counted;
--                                 errors, and the first of them e:<n>; then:<n> what starts when nothing is left, as
--                                 `<when> <delay_ms> <queue> <id> <data>`; up, the length of the id of the run above;
--                                 keep, for how many ms it is kept when nothing is left; after, the schedule whose
--                                 followers wait for the end of all
--
-- Runs for which nobody waits cost one command for all ends of a script. Nothing below stops an end: what a foreign key or
-- a full memory makes impossible is left out, and those who wait find the end when they look again.
-- Includes  limits
--           live
local ENDED_MS, RUNG_MS, RUNG_MAX, BELLS_BYTES = 3600000, 60000, 10000, 1040 -- 16 bells, as runs_await writes them

-- Tell those who wait. `ended`: how, for whoever asks later; nil where the run itself is kept and says so.
local function tell_end(id, bells, ended, keep_ms)
  if ended then
    local is_json, json = pcall(cjson.encode, ended) -- false: numbers of the envelope that JSON has not
    if is_json then
      redis.pcall('SET', keys.ended(id), json, 'PX', whole(math.max(keep_ms, ENDED_MS)))
    end
    if not ended.has_result then
      redis.pcall('DEL', keys.result(id)) -- of an earlier run of this id
    end
  end
  redis.pcall('HDEL', keys.awaited, id)
  for bell in string.gmatch(string.sub(bells, 1, BELLS_BYTES), '%S+') do
    local rung = keys.rung(bell)
    local length = redis.pcall('LLEN', rung)
    if type(length) == 'number' and length < RUNG_MAX then
      redis.pcall('RPUSH', rung, id)
      redis.pcall('PEXPIRE', rung, RUNG_MS)
    end
  end
end

-- A run ended that no worker acknowledged; its data may be gone.
local function tell_any_end(id, outcome)
  local bells = awaited_of({ id })
  if bells then
    tell_end(id, bells[id], outcome ~= 'dead' and { outcome = outcome, ended_ms = now_ms(), has_result = false } or nil, 0)
  end
end

-- An acknowledged run ended: `line` is that of its history, `data` its envelope.
local function tell_acknowledged(id, bells, line, data, has_result, ttl)
  local ended = { has_result = has_result, args = {} }
  local outcome, attempt, started, at, job = string.match(line, '^[^|]*|(%l+)|(%d+)|[^|]*|(%d*)|(%d*)|([^|]*)')
  ended.outcome, ended.attempt, ended.job = outcome, tonumber(attempt), job
  ended.started_ms, ended.ended_ms = tonumber(started), tonumber(at)
  local template, envelope = template_of(data or '')
  ended.job = tostring(template['job'] or job or '')
  ended.result_ttl_s, ended.enqueued_ms = tonumber(template['result_ttl_s'] or nil), tonumber(envelope['enqueued_ms'] or nil)
  for name in pairs(type(template['args']) == 'table' and template['args'] or {}) do
    ended.args[#ended.args + 1] = name
  end
  if #ended.args == 0 then
    ended.args = nil -- an empty table would be written as an object
  end
  tell_end(id, bells, ended, tonumber(ttl))
end

-- What changes in the tallies of this script's runs: collected, then written for each tally at once. A run's own end and
-- the children that it leaves must be written together, so a turn holds this back until it has seen all ends.
local tallies = { is_held = false, changes = {}, by_length = {}, longest = 0, above = {} }
local TALLY_UNFINISHED_MS, TALLY_ERRORS_MAX, TALLY_NAMES_MAX = 7776000000, 100, 50

local function tally_of(id)
  local of = tallies.changes[id]
  if not of then
    of = { id = id, add = {}, errors = {} }
    tallies.changes[id] = of
    tallies.by_length[#id] = tallies.by_length[#id] or {}
    table.insert(tallies.by_length[#id], of)
    tallies.longest = math.max(tallies.longest, #id)
  end
  return of
end

local function tally_add(id, field, n)
  local add = tally_of(id).add
  add[field] = (add[field] or 0) + n
end

local function tally_error(id, run, code, message)
  local errors = tally_of(id).errors
  tally_add(id, 'errors', 1)
  if #errors < TALLY_ERRORS_MAX then
    errors[#errors + 1] = cjson.encode({ run = run, code = code, message = message })
  end
end

-- A run began that a tally counts, or ended at once: `outcome`, or left.
local function tally_begin(parent, id, outcome)
  tally_add(parent, 'total', 1)
  tally_add(parent, outcome, 1)
  if outcome == 'rejected' then tally_error(parent, id, 'id_taken', TAKEN) end
end

-- Whether all runs that a tally counts were ok, or refused as duplicates; and its field `other`.
local function tally_success(key, other)
  local sums = redis.call('HMGET', key, 'total', 'ok', 'duplicate', other)
  return tonumber(sums[1]) == (tonumber(sums[2] or 0) or 0) + (tonumber(sums[3] or 0) or 0), sums[4]
end

-- Start what waits for the end of all runs below a run. One that cannot be started stays where it is, and the tally with
-- it as long as one of the dead can be requeued.
local function tally_follow(key, above)
  local is_success, dead = tally_success(key, 'dead')
  local is_waiting, numbers = false, {}
  for _, field in ipairs(redis.call('HKEYS', key)) do -- those that are there, however many it counts
    numbers[#numbers + 1] = natural(string.match(field, '^then:(%d+)$'))
  end
  table.sort(numbers)
  for _, n in ipairs(numbers) do
    local line = redis.call('HGET', key, 'then:' .. whole(n))
    local when, wait, queue, id, data = string.match(line or '', '^(%l+) (%d+) (%S+) (%S+) (.*)$')
    is_waiting = is_waiting or data and when ~= 'complete' and not is_success
    if data and (when == 'complete' or is_success) then
      if above then -- it is counted where the run that it follows is
        data = string.sub(data, 1, 2) .. '[p' .. whole(#above) .. (string.byte(data, 3) == 91
          and ';' .. string.sub(data, 4) or ']' .. string.sub(data, 3))
      end
      check_types(queue, string.sub(data, 1, 3))
      redis.call('HDEL', key, 'then:' .. whole(n))
      local is_new, ended = admit(queue, id, data, tonumber(wait), HISTORY_MAX)
      if above then tally_begin(above, id, is_new and 'left' or ended) end
    end
  end
  if is_waiting and (tonumber(dead or 0) or 0) > 0 then
    redis.call('PEXPIRE', key, TALLY_UNFINISHED_MS)
  end
end

-- All runs below a run of a schedule have ended: it counts as failed if one of them did, until that is requeued.
local function tally_followed(id, key)
  local is_success, after = tally_success(key, 'after')
  if after then
    local own, nominal = string.match(id, '^([^@!#]+)@(%d+)$')
    local _, schedule = live_lines(after == '1' and own or after) -- 1: written by an older version
    if is_success then redis.call('HDEL', key, 'after') end
    followed_end(schedule, nominal, is_success and 'ok' or 'dead')
  end
end

local function tally_write(of)
  local key = keys.tally(of.id)
  local known = redis.call('HMGET', key, 'total', 'left', 'up', 'keep', 'thens')
  local left, above = tonumber(known[2] or 0) or 0, known[3] and string.sub(of.id, 1, tonumber(known[3])) or nil
  if not known[1] then
    return nil -- it expired, or was made by nobody: nothing is counted
  end
  for field, n in pairs(of.add) do
    local name = field
    if string.sub(field, 1, 2) == 'c:' and redis.call('HEXISTS', key, field) == 0
      and raise(key, 'names', 0) > TALLY_NAMES_MAX then
      name = 'c:other'
    end
    if n ~= 0 then
      redis.pcall('HINCRBY', key, name, whole(n)) -- a sum over 2^63 stays as it is, and must not keep the rest back
    end
  end
  local told = tonumber(redis.call('HGET', key, 'told') or 0) or 0
  for n = 1, math.min(#of.errors, TALLY_ERRORS_MAX - told) do
    redis.call('HSET', key, 'e:' .. whole(told + n), of.errors[n], 'told', whole(told + n))
  end
  local now_left = left + (of.add.left or 0)
  if now_left <= 0 then
    tally_followed(of.id, key)
    redis.call('PEXPIRE', key, known[4] or '86400000')
  elseif left <= 0 then
    redis.call('PEXPIRE', key, TALLY_UNFINISHED_MS)
  end
  return above, now_left <= 0 and known[5] and { key, above } or nil
end

-- Write what was collected: the longest ids first, since each adds to the one above it. Nothing here stops the end of a
-- run: what a foreign key makes impossible is left out.
local function tally_settle()
  local length = tallies.longest
  while length > 0 do
    for _, of in ipairs(tallies.by_length[length] or {}) do
      local is_done, above, follow = pcall(tally_write, of)
      if is_done and above then
        for field, n in pairs(of.add) do
          tally_add(above, field, n)
        end
        local errors = tally_of(above).errors
        for n = 1, math.min(#of.errors, TALLY_ERRORS_MAX - #errors) do
          errors[#errors + 1] = of.errors[n]
        end
      end
      if is_done and follow then
        pcall(tally_follow, follow[1], follow[2])
      end
    end
    length = length - 1
  end
  tallies.changes, tallies.by_length, tallies.longest = {}, {}, 0
end

-- A run that another counts is over. `err`: the JSON of why, of one that was given up.
local function tally_end(id, above, outcome, err)
  local parent = string.sub(id, 1, above)
  tallies.above[id] = above
  tally_add(parent, 'left', -1)
  tally_add(parent, outcome, 1)
  if err and err ~= '' then
    local is_json, error = pcall(cjson.decode, err)
    error = is_json and type(error) == 'table' and error or {}
    tally_error(parent, id, string.sub(tostring(error['type'] or error['reason'] or outcome), 1, 64),
      string.sub(tostring(error['message'] or error['detail'] or ''), 1, 300))
  end
end

-- A run ended, and leaves runs that are counted from now on, counts, errors, and runs that wait for the end of all:
-- `left_behind` as its worker sent it. A run that leaves no other has no tally where another one counts it.
local function tally_open(id, has_children, left_behind, schedule)
  local key, above, keep = keys.tally(id), tallies.above[id], tonumber(left_behind.keep) or 86400000
  local counter, follow = id, left_behind['then'] or {}
  if left_behind.steps then
    redis.call('PEXPIRE', keys.steps(id), whole(keep))
  end
  if above and not has_children and #follow == 0 then
    counter = string.sub(id, 1, above)
  else
    if redis.call('HGET', key, 'left') == '0' then
      redis.call('DEL', key) -- of an earlier run of this id
    end
    redis.call('HSETNX', key, 'total', '0')
    redis.call('HSETNX', key, 'left', '0')
    redis.call('HSET', key, 'keep', whole(keep))
    if above then
      redis.call('HSET', key, 'up', above)
    end
    redis.call('PEXPIRE', key, TALLY_UNFINISHED_MS)
    local _, followed = live_lines(schedule ~= '' and string.match(id, '^([^@!#]+)@%d+$') or '')
    if has_children and redis.call('HEXISTS', keys.schedule_after, followed) == 1 then
      redis.call('HSET', key, 'after', followed)
    end
    tally_add(id, 'left', 0) -- it may be complete at once
    local last = #follow > 0 and raise(key, 'thens', 0, #follow)
    for n, line in ipairs(follow) do
      redis.call('HSET', key, 'then:' .. whole(last - #follow + n), line)
    end
  end
  for name, n in pairs(left_behind.counts or {}) do
    tally_add(counter, 'c:' .. name, tonumber(n) or 0)
  end
  for _, told in ipairs(left_behind.errors or {}) do
    tally_error(counter, id, told[1], told[2])
  end
  if left_behind.errors_more then
    tally_add(counter, 'errors', left_behind.errors_more)
  end
end

-- A run that was given up runs again: whoever counts it takes its death back.
local function tally_revive(id, data)
  local header = header_of(data)
  local above = header and limits_in(header).above
  if above then
    local parent = string.sub(id, 1, above)
    local is_known = (tonumber(redis.pcall('HGET', keys.tally(parent), 'dead') or 0) or 0) > 0
    tally_add(parent, is_known and 'dead' or 'total', is_known and -1 or 1)
    tally_add(parent, 'left', 1)
    tally_settle()
  end
end

-- Free what a run holds, at any end of it but those that a turn settles, and tell who waits. May be called twice.
local function end_limits(queue, id, outcome, err)
  tell_any_end(id, outcome)
  local counted = release_all(queue, { id }, true)
  if counted then
    tally_end(id, counted[id], outcome, err)
    if not tallies.is_held then
      tally_settle()
    end
  end
end

-- Whether a person asked for the end of just this execution.
local function is_cancelled(queue, id, token)
  token = token .. '|'
  local asked = redis.pcall('HGET', keys.cancel(queue), id)
  local how = type(asked) == 'string' and string.match(asked, '^(%l+)|')
  return (how == 'cancel' or how == 'force') and string.find(asked, token, #how + 2, true) == #how + 2
end

-- Clear away what is left of a run that was cancelled: its data is gone, so nothing else will.
local function forget(queue, schedule, id)
  redis.call('HDEL', keys.att(queue), id)
  redis.call('HDEL', keys.err(queue), id)
  end_limits(queue, id, 'cancelled')
  live_remove(schedule, id)
end

-- Give a run up, and keep it for inspection; the oldest go when there are more than `cap`, 100 at a time.
local function give_up(queue, id, now, cap, err)
  redis.call('ZADD', keys.dead(queue), whole(now), id)
  if err ~= '' then
    redis.call('HSET', keys.err(queue), id, err)
  end
  end_limits(queue, id, 'dead', err)
  local excess = math.min(redis.call('ZCARD', keys.dead(queue)) - cap, 100)
  if excess > 0 then
    local old = redis.call('ZRANGE', keys.dead(queue), 0, excess - 1)
    redis.call('ZREM', keys.dead(queue), unpack(old))
    erase(queue, unpack(old))
  end
end

-- An execution ended without taking its replica along: lost replicas (release_runs.lua) are counted anew from here on.
local function forget_losses(queue, id)
  local rest = string.match(redis.call('HGET', keys.err(queue), id) or '', '^(.*),"losses":%d%d?}$')
  if rest then
    redis.call('HSET', keys.err(queue), id, rest .. '}')
  end
end

-- A run goes back unfinished: alone, or to the head of those that wait.
local function go_back(queue, id, data, crashes)
  if is_accused(queue, id, crashes) then
    redis.call('LPUSH', keys.suspect(queue, string.sub(data, 1, 1)), id)
  else
    to_head(queue, id, data)
  end
end

-- The list of a run whose time has come, charged with `att`, and whether it goes to the head of it; of one that came too early for
-- its rate also that line, and since when it is in it. A retry, and such a run, is older than what waits. One that asked to run
-- again goes to the tail: what waits may be what it waits for. One that is accused goes on alone, so that it takes no neighbours
-- with it.
local function lane_of(queue, id, data, att)
  local attempts, crashes = charges(att)
  if att and is_accused(queue, id, crashes) then return keys.suspect(queue, string.sub(head_of(data), 1, 1)), false end
  local header = header_of(data)
  local rate = header and limits_in(header).rate
  local line = rate and keys.rate(queue, string.sub(head_of(data), 1, 1), rate)
  local came = line and tonumber(redis.pcall('ZSCORE', line, id) or nil)
  return ready(queue, data), came ~= nil or attempts > 0 and not has_asked(queue, id), line, came
end
