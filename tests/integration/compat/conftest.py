"""The fixtures of the store's tests, for the bridges."""

from __future__ import annotations

from tests.integration.store import conftest as store

world = store.world
