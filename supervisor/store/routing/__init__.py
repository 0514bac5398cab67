"""Discovery of the Redis master: Sentinel, Cluster, the agent's endpoint."""
