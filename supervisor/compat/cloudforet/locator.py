"""From the class names of task messages to objects: ``{package}.service`` and ``{package}.manager``.

Classes are looked up in the configured packages, in their order. A class gets ``metadata`` or ``transaction`` only if
its constructor takes it, so that a plain class will do.
"""

from __future__ import annotations

import inspect
from typing import Any

from supervisor.compat.cloudforet.tasks import runtime
from supervisor.compat.cloudforet.tasks.names import NotImportableError, resolve
from supervisor.compat.cloudforet.transaction import Transaction, current
from supervisor.core.errors import TenureError
from supervisor.settings.schedules.complete import import_jobs
from supervisor.settings.schedules.search_path import import_named

_CONNECTORS = {"SpaceConnector": "spaceone.core.connector.space_connector:SpaceConnector"}
"""Connectors that no service has to define."""


class LocatorError(TenureError):
    """No configured package has the class that a task message names. Trying again helps no one."""

    ends_run = True


class Locator:
    """Makes the objects that a task or a service asks for by name or by class.

    Raises:
        LocatorError: no configured package has it.
    """

    def __init__(self, transaction: Transaction | None = None) -> None:
        self.transaction = transaction or current()

    def get_service(self, name_or_object: str | type, metadata: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        """Return a service, made with ``metadata``."""
        return _make(_find("service", name_or_object), {"metadata": metadata or {}}, kwargs, self.transaction)

    def get_manager(self, name_or_object: str | type, **kwargs: Any) -> Any:
        """Return a manager."""
        return _make(_find("manager", name_or_object), {}, kwargs, self.transaction)

    def get_info(self, name_or_object: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the info function of that name."""
        return _find("info", name_or_object)(*args, **kwargs)

    def get_model(self, name_or_object: Any) -> Any:
        """Return the model of that name."""
        found = _find("model", name_or_object)
        if hasattr(found, "init"):
            found.init()
        return found

    def get_connector(self, name_or_object: str | type, **kwargs: Any) -> Any:
        """Return a connector with its entry of ``CONNECTORS``."""
        name = name_or_object if isinstance(name_or_object, str) else name_or_object.__name__
        given = dict((runtime.settings().config.get("CONNECTORS") or {}).get(name) or {})
        backend = given.get("backend", _CONNECTORS.get(name)) if isinstance(name_or_object, str) else None
        found = resolve(backend) if backend else _find("connector", name_or_object)
        return _make(found, {"config": given}, kwargs, self.transaction)


def class_of(part: str, name: str) -> type:
    """Return the class that a task message names: one of a configured package, not all that its module imported.

    Raises:
        LocatorError: no configured package has it.
    """
    found = _find(part, name)
    packages = runtime.settings().packages
    if isinstance(found, type) and any(f"{found.__module__}.".startswith(f"{package}.") for package in packages):
        return found
    raise LocatorError(
        f"{name} is no class of cloudforet.packages ({', '.join(packages)}), and a task may call no other; "
        f"add the package that defines it, or correct the name"
    )


def _find(part: str, name_or_object: Any) -> Any:
    if not isinstance(name_or_object, str):
        return name_or_object
    packages = runtime.settings().packages
    import_jobs(())  # a command that was installed does not search the current directory by itself
    for package in packages:
        module = f"{package}.{part}"
        try:
            found = getattr(import_named(module), name_or_object, None)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise NotImportableError(f"{module} needs {error.name}, which is not installed") from None
            found = None
        except ImportError as error:
            raise NotImportableError(f"{module} cannot be imported: {error}") from error
        if found is not None:
            return found
    where = ", ".join(f"{package}.{part}" for package in packages) or "nowhere: cloudforet.packages is empty"
    raise LocatorError(
        f"there is no {part} {name_or_object}; looked in {where}; "
        f"list the package under cloudforet.packages, and import the class in its {part} module"
    )


def _make(kind: Any, given: dict[str, Any], kwargs: dict[str, Any], transaction: Transaction) -> Any:
    """Return an instance; of the arguments offered, only those that the constructor takes."""
    try:
        parameters = inspect.signature(kind).parameters
    except (TypeError, ValueError):
        return kind(**kwargs)
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    offered = {**given, "transaction": transaction}
    taken = {name: value for name, value in offered.items() if takes_any or name in parameters}
    return kind(**{**taken, **kwargs})
