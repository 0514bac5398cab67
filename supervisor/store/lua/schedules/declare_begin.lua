-- Ask whether the schedules of one configuration must be brought in, and keep new dynamic ones away while they are.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       digest         of the whole set
--       lease_ms       a candidate counts as live for two of these after it was last seen
-- Includes  clock
--           term
--
-- Returns  code, revision of the set, now_ms
--          APPLIED  this set was the last that was brought in whole, and nothing of another was written since
--          OLDER    a live candidate holds a set with a higher revision; nothing to do
--          NEEDED   compare, then send pages, removals and the end
--
-- But for NEEDED no set is being brought in, also if this term began with one before: new dynamic ones may come.
-- A set gets a revision when it is first seen. While a live candidate holds one with a higher revision, an older set
-- changes nothing, so that during a rolling update an old replica does not undo what a new one declared.
if not_whole(lease_ms) or digest == '' or string.find(digest, '[#%s]') then return refuse('digest and lease_ms') end
local sets, now = keys.schedule_sets, now_ms()
local revision = moment(redis.call('HGET', sets, digest))
redis.call('HDEL', sets, '#declaring')
if revision and redis.call('HGET', sets, '#applied') == digest then return { 'APPLIED', revision, whole(now) } end
if not revision then
  local highest = natural(redis.call('HGET', sets, '#revision')) or 0
  local known = redis.call('HGETALL', sets)
  for i = 1, #known, 2 do
    highest = math.max(highest, string.sub(known[i], 1, 1) ~= '#' and natural(known[i + 1]) or 0)
  end
  revision = whole(highest + 1)
  redis.call('HSET', sets, '#revision', revision)
  redis.call('HSET', sets, digest, revision)
end
local candidates = redis.call('HGETALL', keys.candidates)
for i = 2, #candidates, 2 do
  local seen, info = string.match(candidates[i], '^(%d+) (.*)$')
  local is_json, candidate = pcall(cjson.decode, info or '')
  if seen and tonumber(seen) >= now - 2 * tonumber(lease_ms) and is_json and type(candidate) == 'table' then
    local other = redis.call('HGET', sets, tostring(candidate['schedules_digest'] or ''))
    if (natural(other) or 0) > tonumber(revision) then return { 'OLDER', revision, whole(now) } end
  end
end
redis.call('HSET', sets, '#declaring', epoch .. ' ' .. nonce)
redis.call('HSET', sets, '#parts', whole(now) .. ' 0') -- as declare_page and declare_remove count them
return { 'NEEDED', revision, whole(now) }
