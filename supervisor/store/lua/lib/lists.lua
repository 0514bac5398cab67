-- Library: the lists in which runs of a queue wait for a worker, as parts of the queue.
local LISTS = { parts.ready('a', '0'), parts.ready('a', '1'), parts.ready('a', '2'), parts.ready('s', '0'), parts.ready('s', '1'),
  parts.ready('s', '2'), parts.suspect('a'), parts.suspect('s') }
