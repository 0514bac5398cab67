"""One live plugin: an object of this process, or a program. Both are called alike.

Guarantees
    A fault of the plugin itself is a ``PluginUnusableError``; any other error of a call means that this
    call failed. No message holds a secret that was handed to the plugin.
    A program whose call did not come to its end is gone: nobody speaks to one in an unknown state.
"""

from __future__ import annotations

import os
import resource
import traceback
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from supervisor.clock import Clock
from supervisor.core.json_values import read_json
from supervisor.core.units import SECOND_NS
from supervisor.plugins.contract import Plugin, PluginError, PluginUnusableError, callable_methods
from supervisor.plugins.program import Program, ProgramEndedError, ProgramTimeoutError
from supervisor.plugins.protocol import (
    MESSAGE_CHARS_MAX,
    PROTOCOL,
    Done,
    Failed,
    Item,
    ProtocolError,
    read_hello,
    read_line,
    request,
    shown,
)
from supervisor.plugins.redaction import Masker
from supervisor.plugins.registration import Registered
from supervisor.process.command.confinement import confined, home_of
from supervisor.process.command.spec import CommandRefusedError, Launch, prepare
from supervisor.roles.worker.attempt.context import Interrupted, SoftTimeout
from supervisor.settings.sections.plugins import PluginSettings
from supervisor.telemetry.masking import drop_causes

FOREVER_NS = 1 << 62
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
_MIB = 1024 * 1024
OURS = (GeneratorExit, SoftTimeout, Interrupted)  # how a worker ends a call

Results = Generator[Any, None, None]


def check_pin(name: str, settings: PluginSettings, version: str) -> None:
    """Return if the configuration lets ``version`` be used.

    Raises:
        PluginUnusableError: it pins another one.
    """
    if settings.version not in {"auto", version}:
        raise PluginUnusableError(
            f"plugin {name} is version {version}, and plugins.{name}.version is {settings.version}; "
            f"install that one, or change the setting",
            phase="start",
        )


class InProcess:
    """A plugin that is an object of this process."""

    is_alive = True

    def __init__(self, registered: Registered, mask: Masker) -> None:
        assert registered.kind is not None
        self._name = registered.name
        self._mask = mask
        self.version = registered.kind.version
        self.methods = callable_methods(registered.kind)
        check_pin(registered.name, registered.settings, self.version)
        with self._blamed("start"):
            self._plugin: Plugin = registered.kind()

    def init(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return its metadata."""
        with self._blamed("init"):
            found = self._plugin.init(options)
            return check_metadata(found, self._mask)

    def verify(self, options: dict[str, Any], secrets: dict[str, str]) -> None:
        """Return if it can work."""
        with self._blamed("verify"):
            self._plugin.verify(options, secrets)

    def call(
        self, method: str, params: dict[str, Any], *, until_ns: int = FOREVER_NS, killed_ns: int | None = None
    ) -> Results:
        """Yield the results of one call. How long that may take is the job's own timeout here."""
        del until_ns, killed_ns
        with self._cleaned():
            value = getattr(self._plugin, method)(*params.values())
            if method == "tasks" and isinstance(value, list | tuple):
                value = iter(value)
            if isinstance(value, Iterator):
                try:
                    yield from value
                finally:
                    close = getattr(value, "close", None)
                    if close is not None:
                        close()
            elif value is not None:
                yield value

    def stop(self, patience_s: float | None = None) -> None:
        """Nothing: it ends with the process."""

    def kill(self) -> None:
        """Nothing either."""

    @contextmanager
    def _blamed(self, phase: str) -> Iterator[None]:
        try:
            yield
        except OURS as error:
            self._scrub(error)
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a plugin raises, it says that it cannot be used
            text = self._shown(error)
            raise PluginUnusableError(f"plugin {self._name} failed in {phase}: {text}", phase=phase) from None

    @contextmanager
    def _cleaned(self) -> Iterator[None]:
        """Let an error of the plugin through as it is, unless it holds a secret or would end this process."""
        try:
            yield
        except OURS as error:
            self._scrub(error)
            raise
        except BaseException as error:
            if isinstance(error, Exception) and self._is_harmless(error):
                raise
            raise PluginError(self._shown(error)) from None

    def _scrub(self, error: BaseException) -> None:
        """Take what shows a secret from an end of a call: a soft timeout meets code that handles an error."""
        if not self._is_harmless(error):
            drop_causes(error)

    def _is_harmless(self, error: BaseException) -> bool:
        """Return whether it can be shown as the run's record keeps it: with its text, its notes and its causes."""
        try:
            whole = f"{error}{''.join(traceback.format_exception(error))}"
        except Exception:  # noqa: BLE001 - its __str__ failed, and would fail whoever reports it
            return False
        return self._mask(whole) == whole

    def _shown(self, error: BaseException) -> str:
        return self._mask("".join(traceback.format_exception_only(error)).strip())[:MESSAGE_CHARS_MAX]


class Isolated:
    """A plugin that is a program."""

    def __init__(self, registered: Registered, mask: Masker, clock: Clock) -> None:
        """Start it and hear who it is.

        Raises:
            PluginUnusableError: it does not start, or is of the wrong form.
        """
        self._name = registered.name
        self._settings = registered.settings
        self._mask = mask
        self._clock = clock
        self._number = 0
        self._program = Program(clock, line_bytes_max=self._settings.line_kib_max * 1024, mask=mask)
        self.version = ""
        self.methods: tuple[str, ...] = ()
        try:
            self._introduce()
        except BaseException:
            self._program.close()
            raise

    def _introduce(self) -> None:
        try:
            self._program.start(launch_of(self._settings))
        except (CommandRefusedError, OSError) as error:
            raise self._unusable("start", str(error)) from None
        found = self._ask(
            "hello", {"protocol": PROTOCOL, "plugin": self._name}, "start", self._settings.start_timeout_s
        )
        try:
            hello = read_hello(found)
        except ProtocolError as error:
            raise self._unusable("start", str(error)) from None
        if self._mask.finds_in(f"{hello.version} {hello.methods}"):
            raise self._unusable("start", "has a secret in its version or its methods, which everybody sees")
        self.version, self.methods = hello.version, tuple(hello.methods) or ("run",)
        check_pin(self._name, self._settings, self.version)

    @property
    def is_alive(self) -> bool:
        """True if it can be called."""
        return self._program.is_running

    def init(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return its metadata."""
        found = self._ask("init", {"options": options}, "init", self._settings.init_timeout_s)
        try:
            return check_metadata(found, self._mask)
        except TypeError as error:
            raise self._unusable("init", str(error)) from None

    def verify(self, options: dict[str, Any], secrets: dict[str, str]) -> None:
        """Return if it can work."""
        self._ask("verify", {"options": options, "secrets": secrets}, "verify", self._settings.init_timeout_s)

    def call(
        self, method: str, params: dict[str, Any], *, until_ns: int = FOREVER_NS, killed_ns: int | None = None
    ) -> Results:
        """Yield the results of one call; to be closed, which ends the program if the call is not over.

        Raises:
            PluginError: the program reported that the call failed, or died.
            PluginUnusableError: it does not keep to the protocol.
        """
        is_over = False
        try:
            for answer in self._answers(method, params, until_ns):
                if isinstance(answer, Item):
                    yield answer.value
                    continue
                is_over = True
                if isinstance(answer, Failed):
                    raise PluginError(self._shown(f"failed in {method}: {answer.message}"))
                if answer.value is not None:
                    yield answer.value
        except ProtocolError as error:
            raise self._unusable("run", str(error)) from None
        except (ProgramEndedError, ProgramTimeoutError) as error:
            raise PluginError(self._shown(f"in {method}: {error}")) from None
        finally:
            if not is_over:
                self._program.interrupt(patience_s=self._patience_s(killed_ns))

    def _patience_s(self, killed_ns: int | None) -> float:
        """Return how long the program may take to end: half of the rest, so that the run can still report why."""
        left_ns = FOREVER_NS if killed_ns is None else max(0, killed_ns - self._clock.elapsed_ns())
        return min(self._settings.stop_timeout_s, left_ns / 2e9)

    def _answers(self, method: str, params: dict[str, Any], until_ns: int) -> Iterator[Item | Done | Failed]:
        unread = self._program.unread_line()
        if unread is not None:
            raise ProtocolError(f"wrote something although nobody had asked: {shown(unread, self._mask)}")
        self._number += 1
        self._program.send(request(self._number, method, params), until_ns=until_ns)
        while True:
            line = self._program.read_line(until_ns=until_ns)
            answer = read_line(line, expected=self._number, mask=self._mask)
            yield answer
            if not isinstance(answer, Item):
                return

    def _ask(self, method: str, params: dict[str, Any], phase: str, timeout_s: float) -> Any:
        """Return the one answer to a call that decides whether the program can be used."""
        until_ns = self._clock.elapsed_ns() + round(timeout_s * SECOND_NS)
        try:
            with closing(self.call(method, params, until_ns=until_ns)) as answers:
                found = list(zip(answers, range(2), strict=False))
        except PluginUnusableError as error:
            error.phase = phase
            raise
        except PluginError as error:
            raise PluginUnusableError(str(error), phase=phase) from None
        if len(found) > 1:
            raise self._unusable(phase, f"answered {method} more than once")
        return found[0][0] if found else None

    def _unusable(self, phase: str, text: str) -> PluginUnusableError:
        self._program.close()
        return PluginUnusableError(self._shown(text), phase=phase)

    def _shown(self, text: str) -> str:
        # Before it is cut: half of a secret would not be known for one.
        return self._mask(f"plugin {self._name} {text}")[:MESSAGE_CHARS_MAX]

    def stop(self, patience_s: float | None = None) -> None:
        """End it in good order."""
        self._program.stop(patience_s=self._settings.stop_timeout_s if patience_s is None else patience_s)

    def kill(self) -> None:
        """End it now."""
        self._program.close()


Instance = InProcess | Isolated


def check_metadata(found: Any, mask: Masker) -> dict[str, Any]:
    """Return the answer of ``init``, checked.

    Raises:
        TypeError: it is no mapping of JSON values, or holds a secret.
    """
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise TypeError(f"init must return a mapping, got {type(found).__name__}")
    body = msgspec.json.encode(dict(found))
    if mask.finds_in(body.decode()):
        raise TypeError("init must return public facts, and returned a secret")
    return read_json(body, dict[str, Any])


def launch_of(settings: PluginSettings) -> Launch:
    """Return how the program is started: with an environment of its own, and its limits.

    Raises:
        CommandRefusedError: it cannot be.
    """
    confinement = settings.confinement_of()
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ} | home_of(confinement)
    launch = prepare(  # noqa: S604 - a list is executed without a shell
        command=list(settings.command),
        shell="/bin/sh",
        env={**environment, **{name: value.get_secret_value() for name, value in settings.env.items()}},
        cwd=settings.cwd,
        stdin=None,
    )
    wanted: list[tuple[int, int | None]] = [
        (resource.RLIMIT_AS, None if settings.memory_mib_max is None else settings.memory_mib_max * _MIB),
        (resource.RLIMIT_CPU, None if settings.cpu_max_s is None else round(settings.cpu_max_s)),
        (resource.RLIMIT_NOFILE, settings.open_files_max),
        (resource.RLIMIT_CORE, 0),
    ]
    limits = tuple((number, most) for number, most in wanted if most is not None)
    return confined(replace(launch, limits=limits), confinement)
