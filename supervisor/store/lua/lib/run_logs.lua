-- Library: output of attempts, kept for people: none of it stops a script, and a full memory refuses it first (adr/0054).
--
--   run_log         hash, expires: number of an execution to JSON of its output; `#born`: the run of this id that it is of
--   run_logs        sorted set, expires: ids of runs with output by the moment of the newest
--   run_logs_bytes  hash, expires: id to bytes of its outputs, and under the empty name of all
local LOG_MS, LOGS_BYTES_MAX, OUTPUTS_MAX, FORGOTTEN_MAX = 604800000, 33554432, 5, 100

local function log_forget(id)
  local bytes = natural(redis.call('HGET', keys.run_logs_bytes, id)) or 0
  redis.call('DEL', keys.run_log(id))
  redis.call('ZREM', keys.run_logs, id)
  redis.call('HDEL', keys.run_logs_bytes, id)
  return raise(keys.run_logs_bytes, '', bytes, 0 - bytes)
end

-- Keep the output of one execution, or drop it if it is empty; of older executions and runs the oldest make room.
local function log_write(id, born, number, output, now)
  local log = keys.run_log(id)
  local is_later_life = redis.call('HGET', log, '#born') ~= born
  if output ~= '' then
    redis.call('HSET', log, '#born', born, number, output) -- the first write: what a full memory refuses
    redis.call('PEXPIRE', log, LOG_MS)
  elseif is_later_life then
    return
  else
    redis.call('HDEL', log, number)
  end
  local fields, numbers, size_of, bytes = redis.call('HGETALL', log), {}, {}, 0
  for n = 1, #fields, 2 do
    if natural(fields[n]) then
      numbers[#numbers + 1], size_of[tonumber(fields[n])] = tonumber(fields[n]), #fields[n + 1]
    end
  end
  table.sort(numbers)
  for n, each in ipairs(numbers) do
    if n <= #numbers - OUTPUTS_MAX or (is_later_life and each ~= tonumber(number)) then
      redis.call('HDEL', log, whole(each))
    else
      bytes = bytes + size_of[each]
    end
  end
  if bytes == 0 then return log_forget(id) end
  if redis.call('EXISTS', keys.run_logs) == 0 then
    redis.call('DEL', keys.run_logs_bytes) -- nothing could be dropped to make room for what it counts
  end
  local before = natural(redis.call('HGET', keys.run_logs_bytes, id)) or 0
  redis.call('HSET', keys.run_logs_bytes, id, whole(bytes))
  local all = raise(keys.run_logs_bytes, '', before, bytes - before)
  redis.call('ZADD', keys.run_logs, whole(now), id)
  redis.call('PEXPIRE', keys.run_logs, LOG_MS)
  redis.call('PEXPIRE', keys.run_logs_bytes, LOG_MS)
  for _ = 1, FORGOTTEN_MAX do
    local oldest = redis.call('ZRANGE', keys.run_logs, 0, 0, 'WITHSCORES')
    if not oldest[1] or (all <= LOGS_BYTES_MAX and tonumber(oldest[2]) > now - LOG_MS) then break end
    all = log_forget(oldest[1])
  end
end
