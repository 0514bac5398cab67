-- Tell bare producers which jobs there are.
--
-- KEYS  jobs           hash: job name to JSON
-- ARGV  pairs...       name, JSON, name, JSON …
--
-- Includes  clock
--
-- Returns  how many names were new. Names that are not given stay: another version may run them.
if #ARGV == 0 or #ARGV % 2 ~= 0 then
  return refuse('pairs of name and JSON')
end
return redis.call('HSET', KEYS[1], unpack(ARGV))
