"""Schedules that stand beside their jobs, written by ``@schedule``. The configuration judges what they mean.

Filled while modules are imported; declaring one costs a line in a list, and loads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from inspect import unwrap
from typing import Any, TypeVar

from supervisor.core.durations import format_duration
from supervisor.core.errors import OptionError
from supervisor.core.json_values import JSON_DEPTH_MAX

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """One schedule as code has it."""

    function: Callable[..., Any]
    name: str | None  # None: that of its job
    fields: Mapping[str, Any]  # as under ``schedules`` of a configuration

    @property
    def function_name(self) -> str:
        """The function, as ``module:qualname``: the same in every version that has it."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    @property
    def origin(self) -> str:
        """Place of the function, as ``file:line``."""
        code = getattr(unwrap(self.function), "__code__", None)
        return self.function_name if code is None else f"{code.co_filename}:{code.co_firstlineno}"

    def replaces(self, other: DeclaredSchedule) -> bool:
        """Return whether ``other`` is of an earlier import of the module, not of a factory, a loop or the same name."""
        mine, its = unwrap(self.function), unwrap(other.function)
        if getattr(mine, "__globals__", None) is not getattr(its, "__globals__", None):
            return True
        code, other_code = (getattr(function, "__code__", None) for function in (mine, its))
        return code is None or (code is not other_code and self.origin == other.origin)  # by importlib.reload


class DeclaredSchedules:
    """Every schedule that code of this process declares."""

    def __init__(self) -> None:
        self._by_function: dict[str, list[DeclaredSchedule]] = {}
        self._own: set[str] = set()

    def add(self, declared: DeclaredSchedule) -> None:
        """Add one; a module that is imported again replaces those of its functions."""
        known = self._by_function.get(declared.function_name, [])
        own = [other for other in known if other.function is declared.function]
        others = [other for other in known if other.function is not declared.function and not declared.replaces(other)]
        self._by_function[declared.function_name] = [*others, declared, *own]  # decorators run from below

    def keep(self) -> None:
        """Take all that there are for the program's own, which no configuration has to list."""
        self._own |= set(self._by_function)

    def found(self, is_listed: Callable[[Callable[..., Any]], bool]) -> list[DeclaredSchedule]:
        """Return those of the program itself and of functions that ``is_listed`` takes, in the order of imports."""
        return [
            declared
            for name, several in self._by_function.items()
            for declared in several
            if name in self._own or is_listed(declared.function)
        ]


schedules = DeclaredSchedules()
"""Those of this process."""


def schedule(cron: str | None = None, /, *, name: str | None = None, **fields: Any) -> Callable[[F], F]:
    """Declare a schedule of the job that the function is, beside its ``@job``. Types: ``tenure/declaring.py``.

    The fields are those of a schedule in a configuration, by the same names, with the same meaning and limits; a
    duration may also be seconds or a ``timedelta``, a moment or a date an object of ``datetime``. They are judged with
    the configuration of the replica that imports the module. A schedule of the same name there replaces this one.

    Args:
        cron: five fields, or six with seconds in front; short for ``cron=``.
        name: of the schedule; default: that of the job.
        **fields: ``every``, ``timezone``, ``args``, ``overlap``, …: see docs/schedules.md.

    Raises:
        TypeError: there is no field, so it would never be due.
        OptionError: a field holds itself, or is nested too deeply.
    """
    if callable(cron) or not (cron or fields):
        raise TypeError('@schedule needs to know when: @schedule("0 9 * * *"), @schedule(every="5m")')
    given = {key: _plain(key, value) for key, value in {**fields, "cron": cron}.items() if value is not None}

    def declare(function: F) -> F:
        schedules.add(DeclaredSchedule(function, name, given))
        return function

    return declare


def _plain(field: str, value: Any, around: tuple[Any, ...] = ()) -> Any:
    """Return ``value`` of a field, which is in each of ``around``, as a configuration would have it."""
    if isinstance(value, timedelta):
        return format_duration(value.total_seconds())
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    if not isinstance(value, Mapping | list | tuple):
        return value
    if len(around) > JSON_DEPTH_MAX or any(value is each for each in around):
        raise OptionError(
            f"@schedule: a value of {field} holds itself, or is nested deeper than {JSON_DEPTH_MAX} levels; flatten it"
        )
    around = (*around, value)
    if isinstance(value, Mapping):
        return {key: _plain(field, each, around) for key, each in value.items()}
    return [_plain(field, each, around) for each in value]
