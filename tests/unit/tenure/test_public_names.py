"""The package that programs import: its names, what importing it costs, and the names of before."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import supervisor
import supervisor.telemetry.logs  # loaded before the first test, which would leave its sink behind
import tenure
import tenure.errors
import tenure.testing
from supervisor.core.jobs.registry import ATTRIBUTES
from supervisor.store.producer.options import EnqueueOptions

PACKAGES = (tenure, tenure.errors, tenure.testing)
HEAVY = ("pydantic", "aiohttp", "prometheus_client", "uvloop", "sqlalchemy", "yaml", "structlog", "rich")
ROLES = (
    "supervisor.roles.web",
    "supervisor.roles.agent",
    "supervisor.roles.scheduler",
    "supervisor.importers",
    "supervisor.settings.base",
    "supervisor.settings.loader",
    "supervisor.settings.sections.models",
)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda each: each.__name__)
def test_every_public_name_exists_and_is_typed(package: ModuleType) -> None:
    """What is loaded when first used is what type checkers see: the table and the imports name the same modules."""
    tree = ast.parse(Path(package.__file__ or "").read_text())
    typed = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name != "lazy_names"
    }
    if "job" in typed:  # types of decorators are a module of their own, which no running program loads
        assert typed["job"] == typed["schedule"] == "tenure.declaring"
        typed |= {"job": "supervisor.core.jobs.registry", "schedule": "supervisor.core.schedules.declared"}
    assert typed == package._MODULES
    assert sorted(typed) == package.__all__
    for name in package.__all__:
        found = getattr(package, name)
        assert (found.__package__ if isinstance(found, ModuleType) else found.__module__).startswith(typed[name]), name
        assert name in dir(package)
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
        package.nothing  # noqa: B018 - the access is the test


def test_every_error_of_the_public_package_is_a_tenure_error() -> None:
    """One ``except`` catches them all."""
    names = tenure.errors.__all__
    assert [name for name in names if not issubclass(getattr(tenure.errors, name), tenure.errors.TenureError)] == []


def test_the_names_of_before_are_the_same_objects() -> None:
    """A program that imports them from ``supervisor`` goes on through 0.x."""
    assert len(supervisor.__all__) == 9
    assert [name for name in supervisor.__all__ if getattr(supervisor, name) is not getattr(tenure, name)] == []
    with pytest.raises(AttributeError, match="nothing"):
        supervisor.nothing  # noqa: B018 - the access is the test


def loaded_by(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after ``code``."""
    printed = f"{code}\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", printed], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_declaring_jobs_loads_neither_redis_nor_anything_of_a_tree() -> None:
    """A web application imports its jobs at every start."""
    code = (
        "import tenure\nfrom tenure import Context, Retry, job\n"
        "@job('a', retry=Retry(attempts=2))\ndef a(context: Context, n: int) -> None: ...\n"
    )
    forbidden = {"redis", "hiredis", "supervisor.settings", *HEAVY, *ROLES}
    assert loaded_by(code) & forbidden == set()
    assert (
        loaded_by("import tenure, tenure.errors, tenure.testing") & (forbidden | {"supervisor.core", "msgspec"})
        == set()
    )


def test_enqueueing_loads_neither_pydantic_nor_anything_of_a_tree() -> None:
    """A web application enqueues in every one of its processes; nothing listens at these addresses."""
    code = """
import os, tenure, tenure.errors
def enqueue():
    try:
        tenure.enqueue('mail', {'to': 'x'})
    except tenure.errors.StoreUnavailableError:
        return
    raise SystemExit('it was there')
os.environ |= {'TENURE_REDIS__URL': 'redis://127.0.0.1:1', 'TENURE_REDIS__COMMAND_TIMEOUT': '500ms'}
enqueue()
tenure.connect('unix:///nowhere/redis.sock', cluster='blue')
enqueue()
tenure.connect('rediss+sentinel://u:pw@127.0.0.1:1/main')
enqueue()
"""
    loaded = loaded_by(code)
    assert "redis" in loaded
    assert loaded & {*HEAVY, *ROLES, "supervisor.core.cron", "supervisor.core.schedules"} == set()


def test_every_module_that_ships_jobs_is_importable_by_its_public_name() -> None:
    """And no second copy of it under another name."""
    for name in ("shell", "http", "identity", "maintenance"):
        assert importlib.import_module(f"tenure.jobs.{name}").__name__ == f"tenure.jobs.{name}"


def test_the_types_of_job_are_the_options_it_has() -> None:
    """A type checker that refuses an option, or offers one that is none, would be worse than none."""
    tree = ast.parse(Path(tenure.__file__).with_name("declaring.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.args.kwonlyargs]
    declared = next(node for node in calls if node.name == "__call__")
    options = next(node for node in calls if node.name == "options")

    parameters = inspect.signature(tenure.job).parameters
    defaults = [ast.literal_eval(each) for each in declared.args.kw_defaults if each is not None]
    assert [each.arg for each in declared.args.kwonlyargs] == list(parameters)[1:]
    assert defaults == [each.default for each in parameters.values()][1:]
    assert {each.arg for each in options.args.kwonlyargs} == set(EnqueueOptions.__annotations__)
    methods = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert methods - {"__call__"} == set(ATTRIBUTES)
