-- Create or change dynamic schedules.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  items...       a definition of ten arguments, see lib/define.lua, at most 250 times
-- Includes  define
--
-- Returns  now_ms, then code and revision for each
--          CREATED    it is new, or was deleted before
--          CHANGED    the revision is the new one
--          UNCHANGED  it was this already; nothing written. A repeated call answers so
--          CONFLICT   its revision is not the expected one (0: it must not exist); nothing written
--          CLASH      a static schedule has the id; nothing written
--          BUSY       it is new, or follows such a one of this call, and a leader is just bringing in its configuration;
--                     nothing written, try again
if #ARGV == 0 or #ARGV % DEFINITION_FIELDS ~= 0 then return refuse('items of ' .. DEFINITION_FIELDS .. ' fields') end
for i = FIRST, #ARGV, DEFINITION_FIELDS do
  local wrong = fault(i)
  if wrong then return refuse(wrong) end
end
check_plan()
-- A leader that ended half-way through its configuration holds nobody up: its term is not the current one any more, or
-- has run out. Should it go on all the same, it meets a clash and refuses its set.
local now = now_ms()
local declaring = redis.call('HGET', keys.schedule_sets, '#declaring')
local term = redis.call('HMGET', keys.lease, 'epoch', 'nonce', 'until')
local is_busy = declaring and declaring == (term[1] or '') .. ' ' .. (term[2] or '') and (tonumber(term[3]) or 0) > now
local reply, is_late = { whole(now) }, {}
for i = FIRST, is_busy and #ARGV or 0, DEFINITION_FIELDS do
  is_late[ARGV[i]] = redis.call('HEXISTS', keys.schedule_def, ARGV[i]) == 0
end
for i = FIRST, #ARGV, DEFINITION_FIELDS do
  local code, revision = 'BUSY', '0'
  if not is_late[ARGV[i]] and not is_late[followed_by(definition_at(i).json) or ''] then
    code, revision = define(i, 'dynamic', now)
  end
  reply[#reply + 1], reply[#reply + 2] = code, revision
end
return reply
