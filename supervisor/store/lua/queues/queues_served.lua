-- Find the queues that open sessions take runs from. Writes nothing.
--
-- KEYS  prefix         every key of this cluster begins with it
-- Includes  served
--
-- Returns  queue and kind (a or s) of the runs taken there, each pair once
return (served_pairs())
