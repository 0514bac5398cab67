"""The checks that every plugin must pass, for its author's own tests.

    from supervisor.testing import plugin_conformance

    test_my_plugin = plugin_conformance(MyPlugin, options={"region": "eu"}, secrets={"key": "k"}, bad_secrets={})

makes one pytest test for each check. A program is given by ``command=["./plugin"]`` in place of the class; it is
started as a worker would start it, and must be gone afterwards. Nothing here needs Redis.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec
import pytest
from pydantic import SecretStr

from supervisor.plugins.contract import Plugin, PluginUnusableError, check_class
from supervisor.plugins.host import PluginHost, ReadyPlugin
from supervisor.plugins.instances import Results
from supervisor.plugins.registry import PluginRegistry
from supervisor.settings.sections.plugins import PluginSettings

RESULTS_MAX = 1000
"""So many results of a call are looked at."""

NAME = "under-test"


@dataclass(frozen=True, slots=True)
class Case:
    """Plugin under test: its settings, methods, and inputs."""

    plugin: type[Plugin] | None
    settings: PluginSettings
    methods: tuple[str, ...]
    task: dict[str, Any] | None
    bad_secrets: dict[str, str] | None
    results_max: int = RESULTS_MAX
    told: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the plugin."""
        return NAME if self.plugin is None else self.plugin.name

    @contextmanager
    def host(self, secrets: Mapping[str, str] | None = None) -> Iterator[PluginHost]:
        """Return a host that knows the plugin and nothing else; nothing of it is left afterwards."""
        registry = PluginRegistry()
        settings = self.settings
        if secrets is not None:
            settings = settings.model_copy(update={"secrets": _hidden(secrets)})
        if self.plugin is not None:
            registry.register(self.plugin)
        registry.configure({self.name: settings}, {})
        host = PluginHost(registry, tell=lambda reason, *_, **__: self.told.append(reason))
        try:
            yield host
        finally:
            host.close()

    @contextmanager
    def ready(self) -> Iterator[ReadyPlugin]:
        """Return the plugin, ready to be called, in a host of its own."""
        with self.host() as host:
            yield host.ready(self.name, {})

    def tasks(self, ready: ReadyPlugin) -> list[Any]:
        """Return the first tasks of the plugin."""
        with closing(ready.instance.call("tasks", _params(ready))) as found:
            return list(islice(found, self.results_max))

    def results(self, ready: ReadyPlugin, method: str) -> list[Any]:
        """Return the first results of one call, for the given task or for the plugin's own first one."""
        with closing(self.call(ready, method)) as found:
            return list(islice(found, self.results_max))

    def call(self, ready: ReadyPlugin, method: str) -> Results:
        """Return the results as they come."""
        task = self.task if self.task is not None else next(iter(self.tasks(ready)), {})
        return ready.instance.call(method, {**_params(ready), "task": task})


def plugin_conformance(
    plugin: type[Plugin] | None = None,
    *,
    command: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    bad_secrets: Mapping[str, str] | None = None,
    task: Mapping[str, Any] | None = None,
    methods: Sequence[str] | None = None,
    **settings: Any,
) -> Callable[..., None]:
    """Return a test with one case for each check; give it a name that pytest finds.

    Args:
        plugin: the class.
        command: or the program, as in the configuration.
        options: with which it works.
        secrets: with which it works.
        bad_secrets: with which ``verify`` must fail; None: it works with any.
        task: the argument of ``run``; default: the first one that ``tasks`` gives.
        methods: the methods to call; default: all that the plugin names.
        **settings: further settings of the plugin, such as ``cwd`` or ``env``.

    Raises:
        ValueError: neither a class nor a program is given, or both.
    """
    if (plugin is None) == (not command):
        raise ValueError("give plugin_conformance either a class or command=[…]")
    case = Case(
        plugin=plugin,
        settings=PluginSettings.model_validate(
            {"command": tuple(command), "options": dict(options or {}), **settings}
        ).model_copy(update={"secrets": _hidden(secrets or {})}),
        methods=tuple(methods or ()),
        task=None if task is None else dict(task),
        bad_secrets=None if bad_secrets is None else dict(bad_secrets),
    )
    checks = [check for check in CHECKS if check is not _verify_refuses_bad_secrets or bad_secrets is not None]

    @pytest.mark.parametrize("check", checks, ids=lambda check: check.__name__.lstrip("_"))
    def test(check: Callable[[Case], None]) -> None:
        """The plugin keeps to the contract."""
        check(case)

    return test


def _definition_is_sound(case: Case) -> None:
    """Name, version and methods are there."""
    if case.plugin is not None:
        check_class(case.plugin)
    with case.ready() as ready:
        assert ready.instance.version, "the plugin must have a version"
        assert ready.instance.methods, "the plugin must have a method to run"


def _init_gives_a_mapping(case: Case) -> None:
    """Metadata of the plugin can be kept as JSON."""
    with case.ready() as ready:
        metadata = ready.metadata
    assert isinstance(metadata, dict)
    msgspec.json.encode(metadata)


def _init_is_repeatable(case: Case) -> None:
    """Each process calls it, and again after a restart: it must return the same."""
    with case.ready() as ready:
        again = ready.instance.init(dict(ready.options))
    assert again == ready.metadata, f"init said {ready.metadata!r}, then {again!r}"


def _verify_accepts_good_secrets(case: Case) -> None:
    """Twice, since it is called in each process."""
    with case.ready() as ready:
        ready.instance.verify(dict(ready.options), dict(ready.secrets))


def _verify_refuses_bad_secrets(case: Case) -> None:
    """A plugin that accepts anything fails later, in the middle of the work."""
    with case.host(secrets=case.bad_secrets) as host, pytest.raises(PluginUnusableError) as caught:
        host.ready(case.name, {})
    assert caught.value.phase == "verify", f"it should fail in verify, and failed in {caught.value.phase}"
    for secret in (case.bad_secrets or {}).values():
        assert len(secret) < 4 or secret not in str(caught.value), "the message of verify shows a secret"


def _tasks_are_mappings(case: Case) -> None:
    """Each becomes the argument of a run, which travels as JSON; the same ones come again when they are asked again."""
    with case.ready() as ready:
        tasks = case.tasks(ready)
        again = case.tasks(ready) if len(tasks) < case.results_max else tasks
    for task in tasks:
        assert isinstance(task, dict), f"tasks gave {task!r}, which is no mapping"
        assert len(msgspec.json.encode(task)) < 60_000, "a task must fit into a run: 64 KiB with everything else"
    assert len(again) == len(tasks), f"tasks gave {len(tasks)} tasks, then {len(again)}"


def _methods_give_results(case: Case) -> None:
    """JSON values; a state, where there is one, is SUCCESS or FAILURE."""
    with case.ready() as ready:
        for method in case.methods or ready.instance.methods:
            for result in case.results(ready, method):
                msgspec.json.encode(result)
                state = result.get("state", "SUCCESS") if isinstance(result, dict) else "SUCCESS"
                assert state in {"SUCCESS", "FAILURE"}, f"{method} gave a result with state {state!r}"


def _it_can_be_called_again(case: Case) -> None:
    """A plugin is kept for many runs."""
    with case.host() as host:
        for _ in range(3):
            ready = host.ready(case.name, {})
            case.results(ready, (case.methods or ready.instance.methods)[0])
            assert ready.instance.is_alive


def _an_unknown_method_is_an_error(case: Case) -> None:
    """Not a crash, and not silence."""
    with case.ready() as ready:
        with (
            pytest.raises(Exception) as caught,  # noqa: PT011 - whatever it says
            closing(ready.instance.call("no_such_method", _params(ready))) as found,
        ):
            list(islice(found, 1))
        assert not isinstance(caught.value, PluginUnusableError), "it must answer with an error, and go on"


def _it_survives_a_cancel(case: Case) -> None:
    """A run may be ended after its first result; the next one works, and nothing of the first is left."""
    with case.host() as host:
        ready = host.ready(case.name, {})
        method = (case.methods or ready.instance.methods)[0]
        with closing(case.call(ready, method)) as found:
            next(found, None)
        host.discard(ready)
        case.results(host.ready(case.name, {}), method)


def _nothing_is_left_behind(case: Case) -> None:
    """Its processes, pipes and files end with it."""
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are wanted
    with case.ready() as ready:
        case.results(ready, (case.methods or ready.instance.methods)[0])
    if case.plugin is None:
        assert not ready.instance.is_alive
        assert len(set(os.listdir("/proc/self/fd")) - before) == 0  # noqa: PTH208


CHECKS: tuple[Callable[[Case], None], ...] = (
    _definition_is_sound,
    _init_gives_a_mapping,
    _init_is_repeatable,
    _verify_accepts_good_secrets,
    _verify_refuses_bad_secrets,
    _tasks_are_mappings,
    _methods_give_results,
    _it_can_be_called_again,
    _an_unknown_method_is_an_error,
    _it_survives_a_cancel,
    _nothing_is_left_behind,
)


def _params(ready: ReadyPlugin) -> dict[str, Any]:
    return {"options": dict(ready.options), "secrets": dict(ready.secrets)}


def _hidden(secrets: Mapping[str, str]) -> dict[str, SecretStr]:
    return {key: SecretStr(value) for key, value in secrets.items()}
