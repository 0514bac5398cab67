-- Library: the end of a run for which somebody waits: kept for whoever asks, and told to those who wait (adr/0047).
--
--   awaited               hash    id of an unfinished run to the bells of those who wait for its end, parted by spaces
--   rung:<bell>           list    expires: ids of awaited runs that ended
--   ended:<run>           string  expires: JSON of how an awaited run ended; a later life of its id removes it
--
-- Runs for which nobody waits cost one command for all ends of a script. Nothing below stops an end: what a foreign key or
-- a full memory makes impossible is left out, and those who wait find the end when they look again.
-- Includes  limits
local ENDED_MS, RUNG_MS, RUNG_MAX = 3600000, 60000, 10000

-- Those of `ids` that are awaited: id to bells; nil for none, as mostly.
local function awaited_of(ids)
  if #ids == 0 or redis.pcall('EXISTS', keys.awaited) ~= 1 then return nil end
  local known, found = redis.pcall('HMGET', keys.awaited, unpack(ids)), nil
  for n, id in ipairs(known['err'] and {} or ids) do
    if known[n] then
      found = found or {}
      found[id] = known[n]
    end
  end
  return found
end

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
  for bell in string.gmatch(bells, '%S+') do
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
