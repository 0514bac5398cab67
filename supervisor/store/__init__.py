"""The only door to Redis: keys, scripts, clients, and the calls that the roles make."""
