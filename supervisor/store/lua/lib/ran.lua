-- Library: runs beside the plan that are remembered by their ids, of schedules also under former names: `ran:<schedule>@<`
-- has those, the latest first, one a line.
local NAMES_MAX, NAMES_MS = 8, 604800000 -- as long as what a backfill enqueued

local names_of = {}
local function former_names(schedule)
  local names = names_of[schedule] or redis.pcall('GET', keys.ran(schedule .. '@<'))
  names_of[schedule] = type(names) == 'string' and names or ''
  return names_of[schedule]
end

-- Whether a run is remembered: also as that of the same time, or with the same key, of a former name of its schedule.
local function has_run(run)
  if redis.call('EXISTS', keys.ran(run)) == 1 then return true end
  local schedule, rest = string.match(run, '^([^@!]+)([@!].*)$')
  for name in string.gmatch(schedule and former_names(schedule) or '', '[^\n]+') do
    if redis.call('EXISTS', keys.ran(name .. rest)) == 1 then return true end
  end
  return false
end

-- A schedule that was called `former` has a new name.
local function keep_name(schedule, former)
  local names, count = {}, 0
  for name in string.gmatch(former .. '\n' .. former_names(former), '[^\n]+') do
    if name ~= schedule and count < NAMES_MAX then
      count = count + 1
      names[count] = name
    end
  end
  redis.call('SET', keys.ran(schedule .. '@<'), table.concat(names, '\n'), 'PX', NAMES_MS)
end
