"""Jobs as agents publish them in Redis, for producers that do not import their functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from supervisor.core.errors import ArgumentsError, shown
from supervisor.core.model import Template


def instantiated(base: Template, args: Mapping[str, Any], overrides: Mapping[str, Any]) -> Template:
    """Return ``base`` with arguments and the overrides that are not None."""
    given = {name: value for name, value in overrides.items() if value is not None}
    return msgspec.structs.replace(base, args={**base.args, **args}, **given)


class JobCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as agents publish it in Redis: routing and argument names, never code."""

    v: int = 1
    template: Template
    signature: str = ""
    required: list[str] = []
    optional: list[str] = []
    given: list[str] = []

    def instantiate(self, args: Mapping[str, Any], **overrides: Any) -> Template:
        """Return the template of a run with ``args``, whose names are checked here and whose types by the worker.

        Raises:
            ArgumentsError: a name is unknown or missing.
        """
        return instantiated(self.template, self.admit(args), overrides)

    def admit(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``args`` if they have the names that the job takes.

        Raises:
            ArgumentsError: a name is unknown or missing.
        """
        known = {*self.required, *self.optional}
        unknown = sorted(shown(name) for name in args if name not in known)
        missing = sorted(set(self.required) - set(args))
        if unknown or missing:
            wrong = [f"takes no argument {item}" for item in unknown] + [f"needs {item!r}" for item in missing]
            raise ArgumentsError(f"job {self.template.job} {', '.join(wrong)}; its signature is {self.signature}")
        return args
