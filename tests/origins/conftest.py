"""The fixtures of the end-to-end tests."""

from __future__ import annotations

from tests.e2e import conftest as e2e

forked_commands = e2e.forked_commands
redis_url, server, short_directory, start, store = e2e.redis_url, e2e.server, e2e.short_directory, e2e.start, e2e.store
