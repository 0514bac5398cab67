-- Library: the record of a backfill: a line of state, cursor, enqueued, skipped, updated_ms, limit, number, 1 when forced
-- and schedule; then a note for people; then the request as its maker wrote it. Nominal times up to the cursor are done.
local BACKFILLS = keys.schedule_backfills

local function backfill_of(record)
  local head, note, json = string.match(record or '', '^([^\n]*)\n([^\n]*)\n(.*)$')
  if not head then return nil end
  local found, names = { note = note, json = json }, { 'state', 'cursor', 'enqueued', 'skipped', 'updated', 'limit',
    'number', 'forced', 'schedule' }
  local n = 0
  for word in string.gmatch(head, '%S+') do
    n = n + 1
    found[names[n] or n] = word
  end
  return n == #names and found or nil
end

local function backfill_text(b)
  return table.concat({ b.state, b.cursor, b.enqueued, b.skipped, b.updated, b.limit, b.number, b.forced, b.schedule },
    ' ') .. '\n' .. b.note .. '\n' .. b.json
end
