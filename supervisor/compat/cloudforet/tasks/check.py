"""Import check of the classes and modules that a configuration names, before its first schedule is due."""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.compat.cloudforet.schedulers import is_handler
from supervisor.compat.cloudforet.tasks import runtime
from supervisor.compat.cloudforet.tasks.names import NotImportableError, resolve
from supervisor.settings.schedules.complete import import_jobs
from supervisor.settings.schedules.search_path import import_named, staying_here
from supervisor.settings.sections.cloudforet import Bridge
from supervisor.settings.sections.models import Settings

PLAN_JOB, RUN_JOB = "cloudforet.plan", "cloudforet.run"


def examine(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield each class and module that is needed here, with its fault: empty without one.

    Imports them: code of the service runs, as it would in a worker.
    """
    runtime.configure(settings.cloudforet)
    import_jobs(())  # a command that was installed does not search the current directory by itself
    executing: set[str] = set()
    for name in dict.fromkeys(_classes(settings, executing)):
        yield name, _problem_of_class(name)
    if any(settings.cloudforet.bridge_of(queue) is not Bridge.EMIT for queue in executing):
        for package in settings.cloudforet.packages:
            for part in ("service", "manager"):
                yield f"{package}.{part}", _problem_of_part(f"{package}.{part}")


def _classes(settings: Settings, executing: set[str]) -> Iterator[str]:
    """Yield the classes of schedules; note the queues that they plan for."""
    for schedule in settings.schedules.values():
        if schedule.job == PLAN_JOB and isinstance(backend := schedule.args.get("backend"), str):
            executing.add(str(schedule.args.get("queue", "")))
            yield backend
        elif schedule.job == RUN_JOB and isinstance(handler := schedule.args.get("handler"), str):
            yield handler


def _problem_of_class(name: str) -> str:
    try:
        found = resolve(name)
    except NotImportableError as error:
        return str(error)
    if callable(getattr(found, "create_task", None)) or is_handler(found):
        return ""
    return f"{name} is neither a scheduler nor a handler: derive it from a scheduler of supervisor.compat.cloudforet"


def _problem_of_part(module: str) -> str:
    """Return why tasks that name classes of this module could not be executed; a package need not have each part."""
    try:
        with staying_here(f"module {module}", module):
            import_named(module)
    except ModuleNotFoundError as error:
        is_absent = error.name is not None and f"{module}.".startswith(f"{error.name}.")
        return "" if is_absent else f"{module} needs {error.name}, which is not installed"
    except (Exception, SystemExit) as error:  # noqa: BLE001 - any code may stand there
        return f"{module} cannot be imported: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return ""
