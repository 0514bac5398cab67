-- Bring in some definitions of a configuration.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  epoch          of the caller's term
--       nonce          of the caller's term
--       digest         of the whole set
--       part           now_ms of declare_begin, and the number of this page or removal, from 1; empty: it is not counted
--       items...       a definition of ten arguments, see lib/define.lua, at most 250 times
-- Includes  term
--           define
--
-- Returns  now_ms, then code and revision for each: CREATED CHANGED UNCHANGED CLASH (a dynamic one has the id)
if digest == '' or digest == 'dynamic' or string.find(digest, '[#%s]')
  or (#ARGV - FIRST + 1) % DEFINITION_FIELDS ~= 0 then
  return refuse('digest and items of ' .. DEFINITION_FIELDS .. ' fields')
end
for i = FIRST, #ARGV, DEFINITION_FIELDS do
  local wrong = fault(i)
  if wrong then return refuse(wrong) end
end
check_plan()
begin_part(part)
local now = now_ms()
local reply = { whole(now) }
for i = FIRST, #ARGV, DEFINITION_FIELDS do
  local code, revision = define(i, digest, now)
  reply[#reply + 1], reply[#reply + 2] = code, revision
end
return reply
