-- Ask the leader to look at schedules that depend on a time zone, where the plan was made under other zone data.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       version        of the caller's zone data
--       cursor         0 at first, then the one of the previous page
--       count          roughly how many are examined
-- Includes  clock
--           term
--
-- Returns  cursor (0 at the end: the version is noted then, and the next call answers so at once), and how many are to be
--          looked at
if version == '' or not_whole(cursor, count) then return refuse('version, cursor and count') end
if redis.call('HGET', keys.schedule_sets, '#zones') == version then return { '0', '0' } end
local page, changed, asked = redis.call('HSCAN', keys.schedule_def, cursor, 'COUNT', count), 0, whole(-now_ms())
for i = 1, #page[2], 2 do
  local score = string.find(page[2][i + 1], '"timezone":"', 1, true) and redis.call('ZSCORE', keys.schedule_next, page[2][i])
  if score and tonumber(score) > 0 and redis.call('HEXISTS', keys.schedule_paused, page[2][i]) == 0 then
    redis.call('ZADD', keys.schedule_next, asked, page[2][i])
    changed = changed + 1
  end
end
if page[1] == '0' then
  redis.call('HSET', keys.schedule_sets, '#zones', version)
end
return { page[1], whole(changed) }
