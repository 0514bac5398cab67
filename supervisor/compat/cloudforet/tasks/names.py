"""From the dotted names of Cloudforet's configuration and task messages to classes.

Guarantees
    ``module.Class`` and ``module:Class`` mean the same. Names of Cloudforet's own framework are those of this package,
    and nothing called ``spaceone.core`` is ever imported for them.
    A failed import is an error that names the class and the remedy; no attempt is made twice.
    Only modules of a configured package are imported.
"""

from __future__ import annotations

import re
from typing import Any

from supervisor.compat.cloudforet.tasks import runtime
from supervisor.core.errors import TenureError
from supervisor.settings.schedules.complete import import_jobs
from supervisor.settings.schedules.search_path import DirectoryChangedError, import_named, staying_here

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[.:][A-Za-z_]\w*", re.ASCII)
FRAMEWORK = "spaceone.core."
_HERE = "supervisor.compat.cloudforet"
_MAPPED = {
    "spaceone.core.scheduler.worker.BaseWorker": f"{_HERE}.schedulers:BaseWorker",
    "spaceone.core.scheduler.scheduler.BaseScheduler": f"{_HERE}.schedulers:BaseScheduler",
    "spaceone.core.scheduler.BaseWorker": f"{_HERE}.schedulers:BaseWorker",
    "spaceone.core.connector.space_connector.SpaceConnector": f"{_HERE}.service:SpaceConnector",
    **{
        f"spaceone.core.scheduler.{inner}{name}": f"{_HERE}.schedulers:{name}"
        for inner in ("", "scheduler.")
        for name in ("IntervalScheduler", "HourlyScheduler", "CronScheduler")
    },
}


class NotImportableError(TenureError):
    """A class that a configuration or a task message names cannot be had. Trying again helps no one."""

    ends_run = True


def known(name: str) -> bool:
    """Return whether ``name`` is one of Cloudforet's own framework that this package has."""
    return name.replace(":", ".") in _MAPPED


def split(name: str) -> tuple[str, str]:
    """Return module and class that ``name`` means, with our replacement of Cloudforet's framework.

    Raises:
        NotImportableError: it is neither ``module.Class`` nor ``module:Class``, or of the framework and not here.
    """
    if not _NAME.fullmatch(name):
        raise NotImportableError(f"{name[:200]!r} is no class: write module.Class or module:Class")
    dotted = name.replace(":", ".")
    module, _, attribute = _MAPPED.get(dotted, dotted).replace(":", ".").rpartition(".")
    if module.startswith(FRAMEWORK):
        raise NotImportableError(
            f"class {name} belongs to Cloudforet's framework, and there is none of that name here; "
            f"use what {_HERE} exports"
        )
    return module, attribute


def resolve(name: str) -> Any:
    """Return the class or function called ``name``, of a configured package or of this one.

    A run names it, and a queue payload must not choose code: nothing outside of those packages is imported for it.

    Raises:
        NotImportableError: it cannot be imported; names the reason and the remedy.
    """
    module, attribute = split(name)
    packages = runtime.settings().packages
    if not known(name) and not any(f"{module}.".startswith(f"{package}.") for package in packages):
        inside = ", ".join(packages) or "empty"
        raise NotImportableError(
            f"class {name} cannot be imported: it lies in none of cloudforet.packages ({inside}); add its package there"
        )
    import_jobs(())  # a command that was installed does not search the current directory by itself
    what = f"class {name} cannot be imported"
    try:
        with staying_here(f"module {module}", module):
            found = import_named(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            remedy = "install the service, or start where it lies (-m adds a path); the name is package.module.Class"
            raise NotImportableError(f"{what}: there is no module {error.name}; {remedy}") from None
        raise NotImportableError(f"{what}: it needs {error.name}, which is not installed; install it") from None
    except DirectoryChangedError as error:
        raise NotImportableError(f"{what}: {error}") from None
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise NotImportableError(f"{what}: module {module} fails with {why}; fix it") from error
    try:
        return getattr(found, attribute)
    except AttributeError:
        raise NotImportableError(f"{what}: module {module} has no {attribute}; correct the name") from None
