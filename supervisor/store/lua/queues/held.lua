-- Read, page by page, which runs of a queue a session holds. Changes nothing of ours.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  session        whose; empty: those of sessions that are neither open nor dying, which nobody will give back
--       queue          which
--       cursor         0 at first, then the one of the previous page
--
-- Includes  clock
--
-- Returns  cursor (0 at the end), then session, id, attempt, fetched_ms for each. One may come twice. A number that
--          no script wrote counts as 0; a fence without a session is left out: `queue fsck` puts its run back. So is an
--          entry that is longer than any of ours.
local page = redis.call('HSCAN', keys.run(queue), cursor, 'COUNT', 500)
page[2] = ours('HDEL', keys.run(queue), page[2], 2)
local reply = { page[1] }
for i = 1, #page[2], 2 do
  local holder, attempt, fetched = string.match(page[2][i + 1], '^(.+)|(%d+)|(%d+)$')
  local is_wanted = holder and holder == session
  if holder and session == '' then
    is_wanted = redis.call('HEXISTS', keys.sessions, holder) == 0
      and redis.call('SISMEMBER', keys.dying, holder) == 0
  end
  if is_wanted then
    local n = #reply
    reply[n + 1], reply[n + 2] = holder, page[2][i]
    reply[n + 3], reply[n + 4] = moment(attempt) or '0', moment(fetched) or '0'
  end
end
return reply
