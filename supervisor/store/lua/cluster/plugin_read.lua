-- Read what is known of one plugin. Writes nothing.
--
-- KEYS  plugins        hash: plugin and digest of its options to at_ms, a space, and JSON
-- ARGV  field          which
--
-- Returns  at_ms, a space, and JSON; nothing when nothing is known
return redis.call('HGET', plugins, field)
