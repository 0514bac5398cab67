"""Every argument of the calls and decorators that programs use, with values that nobody means."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.jobs import registry as jobs
from supervisor.core.schedules import declared
from supervisor.settings.loader import load
from supervisor.settings.schedules.complete import complete
from supervisor.settings.schedules.declarations import with_declared
from supervisor.store.producer import connection
from supervisor.store.producer.options import EnqueueOptions, ManyOptions
from tenure import Retry, enqueue, enqueue_many, job, leadership, schedule
from tenure.declaring import Schedule
from tenure.errors import StoreUnavailableError, TenureError


class Unshowable:
    """An object that cannot be printed."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def nested(depth: int = 5000) -> list[Any]:
    """Return lists in lists."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def mappings(depth: int = 5000) -> dict[str, Any]:
    """Return mappings in mappings."""
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"in": value}
    return value


def circle() -> list[Any]:
    """Return a list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


ODD: dict[str, Any] = {
    "nested lists": nested(),
    "nested mappings": mappings(),
    "nested tuple": (nested(), 1),
    "circle": circle(),
    "list": ["x"],
    "mapping": {"x": 1},
    "empty list": [],
    "empty tuple": (),
    "number as a key": {1: 2},
    "half a character as a key": {"\ud800": 2},
    "set": {1, 2},
    "unshowable": Unshowable(),
    "list of unshowables": [Unshowable()],
    "object": object(),
    "bytes": b"x",
    "NaN": math.nan,
    "infinity": math.inf,
    "negative": -1,
    "truth": True,
    "huge number": 10**5000,
    "large number": 10**400,
    "fraction": 1.5,
    "long text": "x" * 1_000_000,
    "empty text": "",
    "control": "\x1b[31m\x00",
    "surrogate": "\ud800",
    "long time": timedelta.max,
    "naive moment": datetime(2030, 1, 1),  # noqa: DTZ001 - odd
}
FOREIGN = [
    "nested lists",
    "list of unshowables",
    "set",
    "NaN",
    "huge number",
    "surrogate",
    "long text",
    "truth",
    "fraction",
]
"""Values that no configuration could hold, and some that are of the wrong type for most fields."""

MESSAGE_CHARS_MAX = 700
TEXTS = {"long text", "empty text", "control", "surrogate"}
ITERABLES = {name for name, value in ODD.items() if isinstance(value, Iterable)}
ALSO = {"args": ["argument"], "x": ["arguments", "envelope"], "name": ["leadership"]}
"""How else an option is named."""


def plain(x: Any = None) -> None:
    """Do nothing; the job that is enqueued."""


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the program one job, and a Redis that nobody reaches."""
    monkeypatch.setattr(jobs, "registry", jobs.Registry())
    monkeypatch.setattr(declared.schedules, "_by_function", {})
    monkeypatch.setattr(connection, "_default", None)
    producer = connection.connect("redis://127.0.0.1:1/0", cluster="odd")
    job("plain")(plain)
    yield
    producer.close()


def check(
    options: Any, call: Callable[[str, Any], object], accepted: Mapping[str, set[str]], odd_values: Any = ODD
) -> None:
    """Fail unless odd values of each of ``options`` are refused by an error of ours that names it, and is short.

    Args:
        options: names of all arguments.
        call: takes the name and the value.
        accepted: for each name the values that mean something.
        odd_values: names of the values.
    """
    found = []
    for option in options:
        for odd in odd_values:
            value = ODD[odd]
            try:
                call(option, value)
            except StoreUnavailableError:  # so far that it would be enqueued
                refusal = None
            except TenureError as error:
                refusal = str(error)
            except Exception as error:  # noqa: BLE001 - which is the fault
                found.append(f"{option}: {odd}: {type(error).__name__}: {str(error)[:80]}")
                continue
            else:
                refusal = None
            is_accepted = refusal is None
            if is_accepted != (odd in accepted.get(option, ())):
                found.append(f"{option}: {odd}: {'accepted' if is_accepted else refusal[:200]}")
            elif refusal and len(refusal) > MESSAGE_CHARS_MAX:
                found.append(f"{option}: {odd}: {len(refusal)} characters: {refusal[:200]}")
            elif refusal and not any(
                name in refusal for name in (option, option.replace("_", " "), *ALSO.get(option, ()))
            ):
                found.append(f"{option}: {odd}: not named: {refusal[:200]}")
    assert not found, "\n".join(found)


def parameters(function: Any) -> list[str]:
    """Return the names of the arguments of a function."""
    return [name for name in inspect.signature(function).parameters if name not in {"self", "fields", "options"}]


def test_job_refuses_odd_values_of_every_option() -> None:
    """Where they are written, by an error of ours."""

    def declare(option: str, value: Any) -> None:
        @job(**{"name": "odd", option: value})
        def subject(x: str = "") -> None: ...

    times = {"fraction"}
    accepted = {"timeout": times, "soft_timeout": times, "result_ttl": times, "start_deadline": times}
    accepted |= {"unique": {"truth", "control"}, "without": {"empty list", "empty tuple", "empty text"}}
    check(parameters(jobs.job), declare, accepted)


def test_a_retry_policy_refuses_odd_values() -> None:
    """Also those that JSON would carry as something else."""
    accepted = {name: {"fraction"} for name in ("base_s", "base")}
    accepted |= {name: {"empty list", "empty tuple"} for name in ("on", "give_up_on")}
    check(parameters(Retry), lambda option, value: Retry(**{option: value}), accepted)


ENQUEUED = {"delay": {"fraction"}, "traceparent": set(ODD)}  # a malformed trace is dropped: W3C
ARGS = {"mapping"}


def test_enqueueing_refuses_odd_values_of_every_option() -> None:
    """By whichever call; what is accepted reaches for Redis."""
    names = [*EnqueueOptions.__annotations__, "args", "job"]
    call = lambda option, value: enqueue(**{"job": "plain", option: value})  # noqa: E731
    check(names, call, ENQUEUED | {"args": {"mapping"}, "job": TEXTS})
    names = list(EnqueueOptions.__annotations__)
    check(names, lambda option, value: plain.options(**{option: value}).enqueue(), ENQUEUED)
    values = {odd for odd, value in ODD.items() if isinstance(value, int | str | dict | list | tuple)} | {"fraction"}
    foreign = {"nested lists", "nested mappings", "nested tuple", "circle", "list of unshowables", "huge number"}
    foreign |= {"half a character as a key", "long text", "surrogate"}
    check(["x"], lambda option, value: plain.enqueue(x=value), {"x": values - foreign})


def test_enqueueing_many_refuses_odd_values_of_every_option() -> None:
    """As of one."""
    names = [*ManyOptions.__annotations__, "many"]
    call = lambda option, value: enqueue_many(**{"job": "plain", "many": [{}], option: value})  # noqa: E731
    check(names, call, ENQUEUED | {"many": ITERABLES})


def test_a_leadership_refuses_odd_values_of_every_option() -> None:
    """Before anything is started."""
    accepted = {"candidate": {"truth"}, "grace": {"fraction"}, "lease_duration": {"fraction"}}
    call = lambda option, value: leadership(**{"name": "odd", option: value})  # noqa: E731
    check(parameters(leadership), call, accepted)


def test_a_declared_schedule_refuses_odd_values_of_every_field(tmp_path: Path) -> None:
    """With the configuration, which names the function."""
    (tmp_path / "tenure.yaml").write_text("{}\n")
    loaded = load(files=[tmp_path / "tenure.yaml"], environ={}, flags={})
    declared.schedules.keep()

    def declare(option: str, value: Any) -> None:
        declared.schedules._by_function.clear()
        when = {} if option == "cron" else {"every": "1h"}
        schedule(**{**when, option: value})(plain)
        declared.schedules.keep()
        complete(with_declared(loaded, jobs.registry), known=jobs.registry)

    names = parameters(Schedule.__call__)
    accepted = {name: {"fraction"} for name in names if "Duration" in str(Schedule.__call__.__annotations__[name])}
    del accepted["catchup_window"]  # shorter than a lease
    accepted |= {"paused": {"truth"}, "run_on_create": {"truth"}}
    check(names, declare, accepted, FOREIGN)
