-- Stop a backfill: what it enqueued stays, nothing more follows.
--
-- KEYS  prefix         every key of this cluster begins with it
-- ARGV  backfill       id
-- Includes  clock
--           backfill
--
-- Returns  code and record: CANCELLED; OVER, it ended before; UNKNOWN
local now = now_ms()
local b = backfill_of(redis.call('HGET', BACKFILLS, backfill))
if not b then return { 'UNKNOWN', '' } end
local code = (b.state == 'active' or b.state == 'cancelled') and 'CANCELLED' or 'OVER'
if b.state == 'active' then
  b.state, b.updated = 'cancelled', whole(now)
  redis.call('HSET', BACKFILLS, backfill, backfill_text(b))
end
return { code, backfill_text(b) }
