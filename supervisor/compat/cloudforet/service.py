"""The base classes of services and managers, for those that move over by changing imports.

Duties of Cloudforet's decorators in its API server (authentication, authorization, events) are done elsewhere
here or not at all: its name can be imported, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from supervisor.compat.cloudforet.locator import Locator
from supervisor.compat.cloudforet.transaction import Transaction, current

C = TypeVar("C")
Method = Callable[..., Any]


class Located:
    """Base of services, managers and connectors: a transaction and a locator."""

    def __init__(self, transaction: Transaction | None = None, **_: Any) -> None:
        self.transaction = transaction or current()
        self.locator = Locator(self.transaction)


class BaseManager(Located):
    """Base of managers: ``self.locator`` and ``self.transaction``."""

    def __init__(self, transaction: Transaction | None = None, **values: Any) -> None:
        super().__init__(transaction)
        for name, value in values.items():
            setattr(self, name, value)


class BaseService(Located):
    """Base of services: made with the metadata of a stage."""

    def __init__(self, metadata: dict[str, Any] | None = None, transaction: Transaction | None = None) -> None:
        super().__init__(transaction)
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.transaction.meta.update(self.metadata)


def transaction(method: Method | None = None, **_: Any) -> Any:
    """Mark a method of a service as one transaction. The stage that calls it is one already; options change nothing."""
    return method if method is not None else _same


def _handler(cls: C | None = None, **_: Any) -> Any:
    """Decorate a service: nothing is changed."""
    return cls if cls is not None else _same


authentication_handler = authorization_handler = mutation_handler = event_handler = _handler


def _same(value: C) -> C:
    return value
