-- Make the stored schedules those of one configuration.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       digest         of the whole set
--       lease_ms       a candidate counts as live for two of these after it was last seen
--       is_last        1 with the last page of the set: what no page named is removed
--       items...       id, timing digest, next_ms (or empty), definition: once for each schedule
--
-- Includes  clock
--           term
--
-- Returns  1 applied or 0 not, revision of the set, now_ms, number added, number changed, number removed, then the ids
--          in this order
--          error FENCED <epoch>: the term is not the current one; nothing written
--
-- A set gets a revision when it is first seen. While a live candidate holds one with a higher revision, an older set
-- changes nothing, so that during a rolling update an old replica does not undo what a new one declared.
-- An unchanged definition is not touched. A change keeps the watermark, unless it changes the timing: then the
-- watermark is at least now, so that editing a schedule fires nothing in retrospect. A new one starts at now.
local FIELDS, FIRST = 4, 6
local refused = fence(KEYS[1] .. 'lease', ARGV[1], ARGV[2])
if refused then
  return refused
end
if not_whole(4, 4) or ARGV[3] == '' or string.find(ARGV[3], '[#%s]') or (#ARGV - FIRST + 1) % FIELDS ~= 0 then
  return refuse('digest, lease_ms and items of 4 fields')
end
for i = FIRST, #ARGV, FIELDS do
  if not string.match(ARGV[i + 2], '^%d*$') or not string.match(ARGV[i + 1], '^%x+$') or ARGV[i + 3] == '' then
    return refuse('item ' .. ARGV[i])
  end
end

local S = KEYS[1] .. 'schedule:'
local now, digest = now_ms(), ARGV[3]
redis.call('ZCARD', S .. 'next')
redis.call('HLEN', S .. 'def')
redis.call('HLEN', S .. 'mark')

local revision = redis.call('HGET', S .. 'sets', digest)
if not revision then
  revision = whole(redis.call('HINCRBY', S .. 'sets', '#revision', 1))
  redis.call('HSET', S .. 'sets', digest, revision)
end

local candidates = redis.call('HGETALL', KEYS[1] .. 'candidates')
for i = 2, #candidates, 2 do
  local seen, info = string.match(candidates[i], '^(%d+) (.*)$')
  local is_json, candidate = pcall(cjson.decode, info or '')
  if seen and tonumber(seen) >= now - 2 * tonumber(ARGV[4]) and is_json and type(candidate) == 'table' then
    local other = redis.call('HGET', S .. 'sets', tostring(candidate['schedules_digest'] or ''))
    if other and tonumber(other) > tonumber(revision) then
      return { '0', revision, whole(now), '0', '0', '0' }
    end
  end
end

local added, changed, removed = {}, {}, {}
for i = FIRST, #ARGV, FIELDS do
  local id, timing, next_ms, json = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local old = redis.call('HGET', S .. 'def', id)
  local old_revision, old_timing, old_set, old_json = string.match(old or '', '^(%d+)\n(%x+)\n([^\n]*)\n(.*)$')
  local new_revision = old_revision or '1'
  local is_retimed = old_timing ~= timing
  if not old_revision then
    added[#added + 1] = id
  elseif old_json ~= json then
    changed[#changed + 1] = id
    new_revision = whole(tonumber(old_revision) + 1)
  end
  if old_json ~= json or old_set ~= digest then
    redis.call('HSET', S .. 'def', id, new_revision .. '\n' .. timing .. '\n' .. digest .. '\n' .. json)
  end
  if is_retimed then
    local mark = tonumber(redis.call('HGET', S .. 'mark', id) or '0') or 0
    redis.call('HSET', S .. 'mark', id, whole(math.max(mark, now)))
    if next_ms == '' then
      redis.call('ZREM', S .. 'next', id)
    else
      redis.call('ZADD', S .. 'next', next_ms, id)
    end
  end
end

if ARGV[5] == '1' and redis.call('HGET', S .. 'sets', '#applied') ~= digest then
  local all = redis.call('HGETALL', S .. 'def')
  for i = 1, #all, 2 do
    if string.match(all[i + 1], '^%d+\n%x+\n([^\n]*)\n') ~= digest then
      removed[#removed + 1] = all[i]
      redis.call('HDEL', S .. 'def', all[i])
      redis.call('HDEL', S .. 'mark', all[i])
      redis.call('ZREM', S .. 'next', all[i])
    end
  end
  redis.call('HSET', S .. 'sets', '#applied', digest)
end

local reply = { '1', revision, whole(now), whole(#added), whole(#changed), whole(#removed) }
for _, ids in ipairs({ added, changed, removed }) do
  for _, id in ipairs(ids) do
    reply[#reply + 1] = id
  end
end
return reply
