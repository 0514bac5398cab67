"""The plugins of one process: started when a run needs them, kept warm, replaced when they change, stopped when idle.

Guarantees
    ``init`` and ``verify`` have passed before anything else is called, in this process and for these options and
    secrets; they are called again when the version, the options or the secrets differ.
    A changed program is started, asked and verified before it takes the place of the one before, and that one is
    ended only then: a run that is under way has it to its end.
    A plugin that cannot be used leaves none of its started processes running.

Does not guarantee
    That the program of one worker process is that of another: each has its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from supervisor.clock import Clock, SystemClock
from supervisor.core.jobs.resource import Resource
from supervisor.core.units import SECOND_NS
from supervisor.plugins import registry as plugins
from supervisor.plugins.instances import InProcess, Instance, Isolated
from supervisor.plugins.redaction import Masker, mask_of
from supervisor.plugins.registration import Registered, digest_of, fingerprint_of
from supervisor.plugins.registry import PluginRegistry
from supervisor.telemetry import events

CLOSE_S = 0.8
"""How long it may take to end programs that nobody needs, all of them together."""

READY_MAX = 64
"""So many combinations of options are remembered of each plugin."""

log = structlog.get_logger("tenure.plugins")


@dataclass(slots=True)
class ReadyPlugin:
    """A plugin that can be called, with its options and secrets."""

    registered: Registered
    instance: Instance
    options: dict[str, Any]
    secrets: dict[str, str]
    digest: str
    metadata: dict[str, Any]
    mask: Masker
    is_fresh: bool
    """Whether ``init`` and ``verify`` have passed just now."""


@dataclass(slots=True)
class _Live:
    """A plugin in this process."""

    registered: Registered
    instance: Instance
    fingerprint: str
    used_ns: int
    ready: OrderedDict[str, dict[str, Any]] = field(default_factory=OrderedDict)
    """Digest of options and secrets to the metadata that ``init`` gave."""

    def patience_s(self, *, among: int) -> float:
        """Return how long it may take to end twice, by the end of its input and by SIGTERM, as one of ``among``."""
        return min(self.registered.settings.stop_timeout_s, CLOSE_S / 2 / among)


class PluginHost(Resource):
    """Every plugin that this process has needed; a resource of the jobs that run them."""

    def __init__(
        self,
        registry: PluginRegistry | None = None,
        clock: Clock | None = None,
        tell: Callable[..., None] = events.record,
    ) -> None:
        self._registry = registry or plugins.registry
        self._clock = clock or SystemClock()
        self._tell = tell
        self._live: dict[str, _Live] = {}

    def open(self) -> None:
        """Start nothing yet."""

    def ping(self) -> None:
        """Stop the programs that no run has needed for long, and forget those that ended."""
        now_ns = self._clock.elapsed_ns()
        idle = []
        for name, live in list(self._live.items()):
            idle_ns = now_ns - live.used_ns
            if not live.instance.is_alive:
                self._forget(name, "it ended by itself", level="warning")
            elif live.registered.is_isolated and idle_ns >= live.registered.settings.idle_stop_s * SECOND_NS:
                idle.append(name)
        for name in idle:
            # The worker does nothing else meanwhile, and one that does nothing for long is taken for hung.
            self._forget(name, "nobody needed it", among=len(idle))

    def close(self) -> None:
        """End them all, within about a second: the process leaves."""
        for live in self._live.values():
            live.instance.stop(live.patience_s(among=len(self._live)))
        self._live.clear()

    def running(self) -> dict[str, str]:
        """Return the live plugins: name to version."""
        return {name: live.instance.version for name, live in self._live.items() if live.instance.is_alive}

    def ready(self, name: str, options: Mapping[str, Any]) -> ReadyPlugin:
        """Return the plugin ``name``, ready to be called with ``options`` over the configured ones.

        Raises:
            PluginNotRegisteredError: there is none.
            PluginUnusableError: it does not start, or fails in init or verify.
        """
        registered = self._registry.get(name)
        merged = {**registered.settings.options, **options}
        secrets = {key: value.get_secret_value() for key, value in registered.settings.secrets.items()}
        mask = mask_of(registered.settings, registered.references)
        live, is_new = self._find(registered, mask)
        try:
            ready = self._verified(live, registered, merged, secrets, mask)
        except BaseException:
            if is_new or not live.instance.is_alive:
                live.instance.kill()
                if self._live.get(name) is live:
                    del self._live[name]
            raise
        if is_new:
            self._switch(name, live)
        live.used_ns = self._clock.elapsed_ns()
        return ready

    def discard(self, ready: ReadyPlugin) -> None:
        """Forget a plugin whose call broke off, if it is a program: the next run starts another one."""
        live = self._live.get(ready.registered.name)
        if live is not None and live.instance is ready.instance and not live.instance.is_alive:
            self._forget(ready.registered.name, "its call broke off", level="warning")

    def _find(self, registered: Registered, mask: Masker) -> tuple[_Live, bool]:
        """Return the instance to call; true when it was started for this, and is not yet the one in use."""
        live = self._live.get(registered.name)
        fingerprint = fingerprint_of(registered)
        if live is not None and not live.instance.is_alive:
            self._forget(registered.name, "it ended by itself", level="warning")
            live = None
        if live is not None and live.fingerprint == fingerprint:
            return live, False
        is_isolated = registered.is_isolated
        instance: Instance = Isolated(registered, mask, self._clock) if is_isolated else InProcess(registered, mask)
        return _Live(registered, instance, fingerprint, self._clock.elapsed_ns()), True

    def _verified(
        self, live: _Live, registered: Registered, options: dict[str, Any], secrets: dict[str, str], mask: Masker
    ) -> ReadyPlugin:
        digest = digest_of(options)
        key = f"{digest} {digest_of(secrets)}"
        metadata = live.ready.get(key)
        is_fresh = metadata is None
        if metadata is None:
            metadata = live.instance.init(options)
            live.instance.verify(options, secrets)
            live.ready[key] = metadata
            while len(live.ready) > READY_MAX:
                live.ready.popitem(last=False)
        live.ready.move_to_end(key)
        return ReadyPlugin(registered, live.instance, options, secrets, digest, metadata, mask, is_fresh)

    def _switch(self, name: str, live: _Live) -> None:
        before = self._live.get(name)
        self._live[name] = live
        version = live.instance.version
        if before is None:
            self._tell("plugin_started", f"version {version}", subject=name, version=version)
            return
        note = f"version {before.instance.version} gave way to {version}"
        self._tell("plugin_upgraded", note, subject=name, version=version, before=before.instance.version)
        before.instance.stop()

    def _forget(self, name: str, why: str, *, level: str = "info", among: int = 1) -> None:
        live = self._live.pop(name)
        live.instance.stop(live.patience_s(among=among))
        self._tell("plugin_stopped", why, subject=name, level=level, version=live.instance.version)
