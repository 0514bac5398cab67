"""Synchronous and asynchronous Redis clients."""
