"""Operations on plugins: their state, as the workers of the cluster found it."""

from __future__ import annotations

from supervisor.operations import Operation
from supervisor.store.keys import Keys
from supervisor.store.plugins import PluginRecord, Plugins


def records(keys: Keys) -> Operation[dict[str, list[PluginRecord]]]:
    """Read every record, by plugin: one for each set of options that it was used with."""
    found: dict[str, list[PluginRecord]] = {}
    for record in (yield Plugins(keys).read()):
        found.setdefault(record.plugin, []).append(record)
    return found
