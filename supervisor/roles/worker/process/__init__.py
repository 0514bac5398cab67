"""The worker process: heartbeat, recycling, loop monitor, resources."""
