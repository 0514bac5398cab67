-- One turn of a worker process: acknowledge what ended, promote what is due, fetch what may start. The only hot call.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  session        of the caller
--       seq            grows with each turn; a turn whose reply was lost is repeated with the same one
--       letter         a or s: which jobs the caller can run
--       want           how many runs it can start, 0 to 200
--       want_suspect   1: it is idle, so it can take one suspect run alone
--       history        how many ended attempts each queue remembers
--       dead_cap       how many dead runs each queue keeps
--       queue_count    how many queues follow, with two items each
--       ack_count      how many acknowledgements follow them
--       items...       for each queue: name, and how many of its runs may be fetched; then for each acknowledgement:
--                      its history line, `<id>|<outcome>|<attempt>|…`, and `<queue> <fetched_ms>`; where there is more
--                      to say, after that ` <schedule> <result_ttl_ms> <retry_delay_ms> <kind> <child_count>`,
--                      - meaning none, and the result or the error, or empty; where ` x` follows, also JSON of what it
--                      leaves behind: keep, counts, errors, then, steps (adr/0030); where ` l` follows, also
--                      `<born> <number of the execution> <output>` (adr/0054), no output meaning that what is
--                      kept of it is dropped; then the children of all of them, in the same order: id, queue, delay_ms, data
-- Includes  fetch
--           settle
-- Deferred  admit
--           ask_to_yield
--           has_slot
--           is_early
--           is_its_turn
--           is_newest
--           join_slot_line
--           lead_line
--           leave_slot_line
--           line_of
--           live
--           newest_max
--           replace_older
--           run
--           run_logs
--           take_back
--           to_head
--           wait_by_age
--           wait_in_front
--           write_lines
--
-- Returns  LOST, now_ms: the session is not open, or a turn before this one is not known here: Redis went back, and what
--          the caller has finished since is in its hands again. Nothing was done, and the caller must stop what it runs
--          TURN, now_ms, next_due_ms (or empty), stale ids, runs as id, data, `<queue>[ <charges>][ s][ @<fetched_ms>]`,
--          refused acknowledgements as `<queue> <id>`, the first key that is not ours where runs could not be fetched for
--          one, and its error; s: a suspect; fetched_ms: where it is not now_ms
--          error OLDSEQ: a later turn was answered
--
-- An acknowledgement counts only if its very execution, session, attempt and when it was fetched, still owns the run; else
-- its id comes back as stale and it has no effect. One whose queue, or that of a child, has a key that is not ours is refused:
-- it has no effect yet, and is to be sent again in a later turn. The same (session, seq) again does nothing and gets its runs again.
-- Children come into being with the acknowledgement that carries them, all of them or none (adr/0018). One whose id
-- is in its queue already, of a former life of its parent's id, is left alone, and counted as a duplicate; one whose unique
-- key another run holds (adr/0021), or whose id a run of another origin has, ends at once.
-- An id without data was cancelled: it is dropped and not counted.
-- A run is written to `run` before it leaves its list, so that no error in between can lose it.
if not_whole(seq, want, history, dead_cap, queue_count, ack_count) or (letter ~= 'a' and letter ~= 's') then
  return refuse('seq, want, history, dead_cap, queue_count and ack_count must be whole numbers, letter a or s')
end
seq, want, history, dead_cap = tonumber(seq), tonumber(want), tonumber(history), tonumber(dead_cap)
local queues, acks = tonumber(queue_count), tonumber(ack_count)
local first_ack = FIRST + 2 * queues
if want > 200 or queues < 0 or acks < 0 or first_ack + 2 * acks > #ARGV + 1 then
  return refuse('want up to 200, and acknowledgements of 2 or 3 fields')
end
for i = FIRST + 1, first_ack - 1, 2 do
  if not string.find(ARGV[i], '^%d+$') then return refuse('how many runs of ' .. ARGV[i - 1] .. ' may be fetched') end
end

local first_child, unread = read_acks(first_ack, acks)
local fault = unread or children_fault(first_child)
if fault then return refuse(fault) end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(now_us / 1000)
local at = whole(now)
if redis.call('HEXISTS', keys.sessions, session) == 0 then return { 'LOST', at } end
local stale, refused, runs = {}, {}, {}

local given = {} -- for each of runs, what the record calls it: r or s, and its queue
local function give(queue, id, data, att, is_suspect, fetched)
  local n, what = #runs, queue
  if att then -- as the fence counts them: other text could be read as the words behind it
    att = string.format(' %.0f,%.0f,%.0f', charges(att))
  end
  if att or is_suspect or fetched then
    what = queue .. (att or '') .. (is_suspect and ' s' or '') .. (fetched and ' @' .. whole(fetched) or '')
  end
  runs[n + 1], runs[n + 2], runs[n + 3] = id, readable(data), what
  given[#given + 1] = is_suspect and 's ' .. queue or queue
end

-- When to ask again, at `first` or when the first of the later runs is due, as far as each queue's is known: false where there is none.
local due_at, NEVER_MS = {}, 9007199254740992
local function next_due(first)
  for i = FIRST, first_ack - 1, 2 do
    local due = due_at[ARGV[i]]
    if due == nil then
      due = tonumber((redis.pcall('ZRANGE', keys.later(ARGV[i]), 0, 0, 'WITHSCORES'))[2] or nil)
    end
    if due and due < NEVER_MS and (not first or due < first) then
      first = math.max(due, 0)
    end
  end
  return first and whole(first) or ''
end

-- A turn that was answered before: the reply again, from what was stored: `<seq> <wheel>`, then lines of ids of one
-- queue, `x` for stale ones, `k` for refused ones, `r` and `s` for runs.
local last = redis.call('HGET', keys.turns, session)
local function give_again()
  for what, queue, ids in string.gmatch(last, '\n(%a) (%S+) ([^\n]+)') do
    for id in string.gmatch(ids, '%S+') do
      local is_run = what == 'r' or what == 's'
      local token = is_run and redis.pcall('HGET', keys.run(queue), id) -- an error of a key that is not ours is a table
      if what == 'x' then
        stale[#stale + 1] = id
      elseif what == 'k' then
        refused[#refused + 1] = queue .. ' ' .. id
      elseif type(token) == 'string' and string.sub(token, 1, #session + 1) == session .. '|' then
        local data, att = redis.pcall('HGET', keys.data(queue), id), redis.pcall('HGET', keys.att(queue), id)
        if type(data) == 'string' then
          local fetched = natural(string.match(token, '|(%d+)$'))
          give(queue, id, data, type(att) == 'string' and att, what == 's', fetched)
        end
      end
    end
  end
end
local last_seq, wheel = string.match(last or '', '^(%d+) ?(%d*)')
last_seq, wheel = tonumber(last_seq), tonumber(wheel) or now % 10
if last_seq and seq < last_seq then return redis.error_reply('OLDSEQ ' .. whole(last_seq)) end
if last_seq and seq > last_seq + 1 then return { 'LOST', at } end
if last_seq == seq then
  give_again()
  return { 'TURN', at, next_due(), stale, runs, refused, '' }
end

local turn = { session = session, letter = letter, want = want, want_suspect = want_suspect == '1', wheel = wheel, now = now,
  now_us = now_us, history = history, dead_cap = dead_cap, first_child = first_child, stale = stale, refused = refused, due_at = due_at,
  give = give, count = count }
settle_acks(turn)
turn.want = math.max(want - #refused, 0) -- its caller counted on the places of those

-- Fetching. The first line deletes nothing. After a first write that memory which is full does not refuse, a script is refused
-- none: so what is queued can begin and end, which is what frees memory, and no write can fail half-way.
redis.call('HDEL', keys.turns, '')
local function open_queues()
  local open, turned = {}, queues > 0 and (seq + now_us) % queues or 0
  for n = 0, queues - 1 do
    local place = FIRST + 2 * ((n + turned) % queues)
    local queue = ARGV[place]
    due_at[queue] = promote(queue, now)
    if want > 0 and redis.call('EXISTS', keys.paused(queue)) == 0 then
      open[#open + 1] = { name = queue, room = tonumber(ARGV[place + 1]) }
    end
  end
  return open
end
turn.open = open_queues()
local failed = fetch(turn)

-- What a repeated turn needs. Each leaves its number, also one that got nothing: a copy of it that comes after its caller
-- went on would fetch runs that nobody asks for again, and a number that is missing shows that Redis went back.
local function record_of()
  local record = { whole(seq) .. ' ' .. whole((wheel + #given) % 10) }
  if #stale > 0 then
    record[2] = 'x - ' .. table.concat(stale, ' ')
  end
  for _, each in ipairs(refused) do
    record[#record + 1] = 'k ' .. each
  end
  local n = 1
  while n <= #given do
    local what, ids = given[n], {}
    repeat
      ids[#ids + 1] = runs[3 * n - 2]
      n = n + 1
    until given[n] ~= what
    record[#record + 1] = (string.find(what, ' ', 1, true) and what or 'r ' .. what) .. ' ' .. table.concat(ids, ' ')
  end
  return table.concat(record, '\n')
end
redis.call('HSET', keys.turns, session, record_of())
write_stats()
return { 'TURN', at, next_due(turn.again_at), stale, runs, refused, failed or '' }
