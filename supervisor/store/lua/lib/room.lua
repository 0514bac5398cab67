-- Library: what must go on while the server is out of memory, because it keeps the cluster alive or frees memory. A script
-- that has written is no longer refused, and this write takes nothing. KEYS[1] is a hash, or the prefix of all keys.
redis.call('HDEL', KEYS[1], '')

