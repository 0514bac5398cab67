-- Library: entries of a list that no longer stand for a run: it was cancelled, or waits in another list now. To take
-- one out of the middle of a long list would hold the server up, so it is counted in the queue's `stale` hash, by list
-- and id, and skipped when it comes to the head. An id has as many entries in a list as are counted here, and one more
-- if that list is its place; which of them is skipped does not matter.
-- Includes  clock
local function stale_field(queue, list, id)
  return string.sub(list, #keys.queue(queue) + 1) .. ' ' .. id
end

-- The entry of `id` in `list` no longer counts.
local function stale_add(queue, list, id)
  local stale, field = keys.stale(queue), stale_field(queue, list, id)
  if type(redis.pcall('HINCRBY', stale, field, 1)) ~= 'number' then
    redis.call('HSET', stale, field, '1') -- somebody wrote another text there
  end
end

-- How many entries of `id` in `list` do not count.
local function stale_count(queue, list, id)
  return foreign(redis.call('HGET', keys.stale(queue), stale_field(queue, list, id)) or '') or 0
end

-- Which of `ids`, in the order of `list`, are to be skipped, as n = true. They are no longer counted afterwards, so they
-- must leave the list in the same script. nil if a foreign key is in the way.
local function stale_drop(queue, list, ids)
  local skipped, stale = {}, keys.stale(queue)
  local known = #ids > 0 and redis.pcall('HLEN', stale) or 0
  if known == 0 then
    return skipped
  elseif type(known) ~= 'number' then
    return nil
  end
  local fields = {}
  for n, id in ipairs(ids) do
    fields[n] = stale_field(queue, list, id)
  end
  local left = {}
  for n, count in ipairs(redis.call('HMGET', stale, unpack(fields))) do
    local field = fields[n]
    left[field] = left[field] or foreign(count or '') or 0
    if left[field] > 0 then
      left[field] = left[field] - 1
      skipped[n] = true
      if left[field] == 0 then
        redis.call('HDEL', stale, field)
      else
        redis.call('HSET', stale, field, whole(left[field]))
      end
    end
  end
  return skipped
end
