"""The worker process: heartbeat, loop monitor, resources."""
