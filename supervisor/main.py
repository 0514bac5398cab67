"""A program of yours that is the command: its jobs, plugins and hooks are there without being listed anywhere.

    from tenure import Plugin, job, main

    @job()
    def report() -> None: ...

    class Hello(Plugin): ...

    if __name__ == "__main__":
        main(plugins=[Hello])

``python my_service.py run`` starts a replica, and so does every other word of ``tenure``. Everything handed over
lives in the process that starts the tree, so every child has it, those after a reload too; a change of the
program itself takes a restart.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.__main__ import hold_signals

if TYPE_CHECKING:
    from supervisor.plugins.contract import Plugin


def main(
    argv: Sequence[str] | None = None,
    *,
    plugins: Iterable[type[Plugin]] = (),
    jobs: Iterable[str | Callable[..., Any]] = (),
    hooks: Mapping[str, type] | None = None,
) -> None:
    """Run the command line of this program, and exit with its code.

    Args:
        argv: words after the program's name; None: those of this process.
        plugins: classes that schedules may name, beside those of the configuration.
        jobs: modules to import, as under ``jobs:`` of a configuration, or functions that ``@job`` decorated; those
            that the program itself has decorated are known without being named here.
        hooks: classes for the fire pipeline by the name under which profiles enable them.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    hold_signals(words)
    from supervisor.cli.main import main as command  # noqa: PLC0415 - after the signals, as everything that takes time

    command(words, prog_name=Path(sys.argv[0]).name or "tenure", before=lambda: register(plugins, jobs, hooks or {}))


def register(
    plugins: Iterable[type[Plugin]], jobs: Iterable[str | Callable[..., Any]], hooks: Mapping[str, type]
) -> None:
    """Register a program's plugins and jobs.

    Raises:
        TenureError: something cannot be used, or has the name of another; both origins are named.
        ImportError: a module is not there.
    """
    from supervisor.core.jobs.registry import registry as known_jobs  # noqa: PLC0415 - as in main
    from supervisor.core.schedules import declared  # noqa: PLC0415 - as in main
    from supervisor.settings.schedules.search_path import (  # noqa: PLC0415 - as in main
        import_named,
        module_of,
        search_here,
        staying_here,
    )

    search_here()
    for each in jobs:
        if isinstance(each, str):
            with staying_here(f"module {each}", each):
                import_named(module_of(each))
        else:
            known_jobs.find(each)
    declared.schedules.keep()
    if plugins:
        from supervisor.plugins.registry import registry as known_plugins  # noqa: PLC0415 - as in main

        for kind in plugins:
            known_plugins.register(kind)
    if hooks:
        from supervisor.settings.schedules.hook_sources import offer  # noqa: PLC0415 - as in main

        for name, kind in hooks.items():
            offer(name, kind)
