"""Plugin status, shared by the whole cluster; and suspension of the schedules of unusable plugins.

Guarantees
    A plugin that fails in init or verify, or breaks the protocol, is in ERROR at once; one whose calls fail, after
    ``fail_after`` of them in a row. Its schedules are then suspended with the reason, for a time that doubles with
    each failure up to an hour; when it works again they are released. A person's pause is never touched.
    An outage of Redis changes nothing of how a run ends.

Does not guarantee
    An exact count of failures when several workers fail at the same instant: one of them may be missed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import structlog

from supervisor.clock import Clock
from supervisor.core.effects import Call
from supervisor.core.errors import StoreRefusedError, StoreUnavailableError
from supervisor.operations import slices
from supervisor.plugins.contract import PluginUnusableError
from supervisor.plugins.registration import Registered, digest_of
from supervisor.plugins.registry import JOBS
from supervisor.store.keys import Keys
from supervisor.store.plugins import PluginRecord, Plugins, PluginState, SuspendCode
from supervisor.store.schedules.control import BATCH_MAX
from supervisor.store.schedules.reads import Record, Views
from supervisor.telemetry import events

PAGES_MAX = 2000
SUSPENDED_S_MAX = 3600.0
REASON_CHARS_MAX = 450

log = structlog.get_logger("tenure.plugins")


class Runner(Protocol):
    """Subset of a producer that is used here."""

    def run(self, call: Call[Any], *, timeout_s: float | None = None) -> Any:
        """Make a call that bears being made twice."""

    @property
    def keys(self) -> Keys:
        """Keys of the cluster in Redis."""
        ...


@dataclass(frozen=True, slots=True)
class Subject:
    """A plugin with certain options."""

    registered: Registered
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """The plugin's."""
        return self.registered.name

    @property
    def digest(self) -> str:
        """The identity of the options."""
        return digest_of(self.options)


class PluginStatus:
    """Plugin status in Redis, and the suspension of schedules that follows from it."""

    def __init__(self, runner: Runner, clock: Clock, *, by: str | None = None) -> None:
        self._runner = runner
        self._clock = clock
        self._calls = Plugins(runner.keys)
        self._views = Views(runner.keys)
        self._by = by or f"{socket.gethostname()}:{os.getpid()}"

    def known(self, subject: Subject) -> PluginRecord | None:
        """Return its record; None when there is none, or Redis does not answer."""
        try:
            record: PluginRecord | None = self._runner.run(self._calls.read_one(subject.name, subject.digest))
        except (StoreUnavailableError, StoreRefusedError) as error:
            log.warning("plugin_state_unknown", plugin=subject.name, error=str(error))
            return None
        return record

    def verified(self, subject: Subject, *, version: str, metadata: dict[str, Any], known: PluginRecord | None) -> None:
        """Note that init and verify passed; where it was those that had failed, its schedules are released."""
        if known is not None and known.state == PluginState.ERROR and known.phase == "run":
            return  # only a call that works says that it works
        if known is not None and (known.state, known.version, known.metadata) == ("ACTIVE", version, metadata):
            return
        # Calls that failed are not undone by passing verify.
        failures = known.failures if known is not None and known.phase == "run" else 0
        self._became_active(subject, version=version, metadata=metadata, known=known, failures=failures)

    def worked(self, subject: Subject, *, version: str, metadata: dict[str, Any], known: PluginRecord | None) -> None:
        """Note that a call came to its end."""
        if known is None or known.failures or known.state != PluginState.ACTIVE:
            self._became_active(subject, version=version, metadata=metadata, known=known)

    def vouched(self, subject: Subject, *, version: str, metadata: dict[str, Any]) -> int:
        """Note that a person verified it; return how many schedules were released."""
        known = self.known(subject)
        if known is None or known.state != PluginState.ERROR:
            return 0
        self._runner.run(self._calls.write(self._active(subject, version=version, metadata=metadata)))
        return self.release(subject)

    def failed(self, subject: Subject, error: Exception, *, version: str, schedule: str | None) -> None:
        """Note that it failed, and suspend its schedules if it cannot be used any more."""
        try:
            self._failed(subject, error, version=version, schedule=schedule)
        except (StoreUnavailableError, StoreRefusedError) as outage:
            log.warning("plugin_state_lost", plugin=subject.name, error=str(outage))

    def _failed(self, subject: Subject, error: Exception, *, version: str, schedule: str | None) -> None:
        known = self.known(subject) or PluginRecord(plugin=subject.name, digest=subject.digest, state="REGISTERED")
        settings = subject.registered.settings
        failures = known.failures + 1
        told = " ".join(f"{error}".encode("utf-8", "replace").decode().split())  # a lone surrogate is no JSON
        reason = told[:REASON_CHARS_MAX] or type(error).__name__
        phase = error.phase if isinstance(error, PluginUnusableError) else "run"
        record = msgspec.structs.replace(
            known, failures=failures, reason=reason, phase=phase, version=version or known.version, by=self._by
        )
        is_unusable = isinstance(error, PluginUnusableError)
        if not is_unusable and (settings.fail_after == 0 or failures < settings.fail_after):
            self._runner.run(self._calls.write(record))
            return
        # No longer than when it was noted: the clock of this machine may be behind that of Redis.
        left_s = (known.until_ms - max(known.at_ms, self._clock.wall_ms())) / 1000
        is_again = known.state == PluginState.ERROR and left_s > 0  # another attempt of a run that failed before
        errors = max(1, known.errors) if is_again else known.errors + 1
        for_s = left_s if is_again else min(SUSPENDED_S_MAX, settings.retry_after_s * 2 ** min(errors - 1, 20))
        ids = self._own_schedule(subject, schedule)
        if not is_again:
            ids = sorted({*ids, *self.schedules_of(subject)})
        suspended, until_ms = self._suspend(subject, ids, reason, for_s=for_s)
        record = msgspec.structs.replace(
            record,
            state=PluginState.ERROR.value,
            errors=errors,
            suspended=max(suspended, known.suspended if is_again else 0),
            until_ms=known.until_ms if is_again else until_ms,
        )
        self._runner.run(self._calls.write(record))
        events.record("plugin_failed", reason, subject=subject.name, level="error", phase=phase)
        if suspended and not is_again:
            note = f"{suspended} schedule(s) start nothing for {for_s:.0f} s: {reason}"
            events.record("plugin_suspended", note, subject=subject.name, level="warning", schedules=suspended)

    def _became_active(
        self, subject: Subject, *, version: str, metadata: dict[str, Any], known: PluginRecord | None, failures: int = 0
    ) -> None:
        record = self._active(subject, version=version, metadata=metadata)
        if failures and known is not None:
            record = msgspec.structs.replace(record, failures=failures, reason=known.reason, phase=known.phase)
        try:
            self._runner.run(self._calls.write(record))
            if known is not None and known.state == PluginState.ERROR:
                self.release(subject)
        except (StoreUnavailableError, StoreRefusedError) as error:
            log.warning("plugin_state_lost", plugin=subject.name, error=str(error))

    def _active(self, subject: Subject, *, version: str, metadata: dict[str, Any]) -> PluginRecord:
        return PluginRecord(
            plugin=subject.name,
            digest=subject.digest,
            state=PluginState.ACTIVE.value,
            version=version,
            metadata=metadata,
            by=self._by,
        )

    def _suspend(self, subject: Subject, ids: Sequence[str], reason: str, *, for_s: float) -> tuple[int, int]:
        count, until_ms = 0, 0
        text = f"plugin {subject.name} is in ERROR: {reason}"
        for_ms = max(1, round(for_s * 1000))
        for page in slices(ids, BATCH_MAX):
            answer = self._runner.run(self._calls.suspend(page, by=_by(subject.name), reason=text, for_ms=for_ms))
            until_ms = answer.until_ms
            count += answer.codes.count(SuspendCode.SUSPENDED)
        return count, until_ms

    def release(self, subject: Subject) -> int:
        """Release the schedules suspended for it; return how many there were."""
        pages = slices(self.schedules_of(subject), BATCH_MAX)
        released = (self._runner.run(self._calls.release(page, by=_by(subject.name))) for page in pages)
        return sum(codes.count(SuspendCode.RELEASED) for codes in released)

    def schedules_of(self, subject: Subject) -> list[str]:
        """Return the schedules that run the plugin with these options, as far as their arguments show."""
        return [
            record.id
            for record, options in self._schedules(subject.name)
            if _may_give(subject, options, is_meant=record.pause is not None and record.pause.by == _by(subject.name))
        ]

    def _own_schedule(self, subject: Subject, schedule: str | None) -> list[str]:
        """Return the schedule that a run names, if it runs the plugin with these options.

        Whoever may enqueue writes what a run names, a trigger has options of its own, and a definition may be another
        by now.
        """
        if schedule is None:
            return []
        (found,) = self._runner.run(self._views.inspect([schedule]))
        options = None if found.record is None else _options(found.record, subject.name)
        return [schedule] if options is not None and _may_give(subject, options, is_meant=True) else []

    def schedules_running(self, name: str) -> list[str]:
        """Return the schedules that run the plugin, with whatever options."""
        return sorted({record.id for record, _ in self._schedules(name)})

    def _schedules(self, name: str) -> Iterator[tuple[Record, Mapping[str, Any]]]:
        quoted = f'"{name}"'.encode()
        cursor = "0"
        for _ in range(PAGES_MAX):
            page = self._runner.run(self._views.browse(cursor))
            for record in page.items:
                if (
                    b'"plugin.' in record.body
                    and quoted in record.body
                    and (options := _options(record, name)) is not None
                ):
                    yield record, options
            cursor = page.cursor
            if cursor == "0":
                return


def _options(record: Record, name: str) -> Mapping[str, Any] | None:
    """Return the options that a schedule gives to the plugin ``name``; None when it does not run that."""
    try:
        template = record.definition().template
    except msgspec.DecodeError:
        return None
    if template.job not in JOBS or template.args.get("plugin") != name:
        return None
    options = template.args.get("options")
    return options if isinstance(options, Mapping) else {}


def _may_give(subject: Subject, options: Mapping[str, Any], *, is_meant: bool) -> bool:
    """Return whether a schedule with ``options`` gives those of ``subject``; of placeholders, if it ``is_meant``."""
    is_same = digest_of({**subject.registered.settings.options, **options}) == subject.digest
    return is_same or (is_meant and b"{{" in msgspec.json.encode(options))


def _by(name: str) -> str:
    """Return who suspends, in the form of a schedule's pause."""
    return f"plugin {name}"
