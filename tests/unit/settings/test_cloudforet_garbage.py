"""Whatever stands in a Cloudforet file, the answer is settings or problems."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.app.configuration import load
from supervisor.core.errors import ConfigError
from supervisor.importers.cloudforet.python_source import read_module
from supervisor.importers.cloudforet.report import ImportReport
from tests.kit.tables import table

KEYS = st.sampled_from(
    [
        "SCHEDULERS", "QUEUES", "WORKERS", "GLOBAL", "IMPORT", "REMOTE_URL", "TOKEN", "TOKEN_INFO", "LOG", "HOSTNAME", "NAME", "timezone",
        "phase", "packages", "compat", "SCHEDULER", "application_scheduler", "application_worker", "database", "global", "shared", "volumes", "backend",
        "handler", "queue", "interval", "minute", "rule", "unit", "enabled", "misfire", "misfire_grace", "options", "host", "port", "db", "ssl",
        "username", "password", "channel", "bridge", "pool", "url", "optional", "sha256", "timeout", "q", "s", "handlers", "loggers", "level", "socket_timeout",
    ]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["q", "a.B", ":15", "15:30", "* * * * *", "redis", "start", "Asia/Seoul", "${env:X}", "", "a b", "s.yaml", "x" * 300, "\u2028"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=20,
)
ENTRY = st.dictionaries(KEYS, SCALARS, max_size=6)
TABLE = st.dictionaries(st.sampled_from(["q", "s", "a b", "w"]), st.one_of(ENTRY, SCALARS), max_size=3)
SECTIONS = {name: st.one_of(TABLE, VALUES) for name in ("SCHEDULERS", "QUEUES", "WORKERS")}
DOCUMENTS = st.one_of(
    st.dictionaries(KEYS, VALUES, max_size=6),
    st.fixed_dictionaries(SECTIONS, optional={"TOKEN": SCALARS, "GLOBAL": VALUES, "LOG": VALUES, "timezone": SCALARS}),
    st.fixed_dictionaries({"GLOBAL": st.fixed_dictionaries(SECTIONS)}),
    st.fixed_dictionaries({"application_scheduler": st.fixed_dictionaries(SECTIONS), "application_worker": VALUES}),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(document=DOCUMENTS)
def test_any_document_gives_settings_or_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: dict[str, Any]
) -> None:
    """No value, wherever it stands, makes the loader fail otherwise."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "application.yaml"
    file.write_text(yaml.safe_dump(document, allow_unicode=True))
    with suppress(ConfigError):
        load(files=[file], environ={}, flags={}, compat="cloudforet")


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "key", ["unit", "phase", "misfire", "enabled", "options", "timezone", "queue", "minute", "rule"]
)
@pytest.mark.parametrize("value", ["[]", "{}", "[[1]]", "{a: {b: 1}}"])
def test_a_list_or_mapping_where_a_word_belongs_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: str
) -> None:
    """Every key of an entry, with values of another kind."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "application.yaml"
    entry = {"backend": "a.B", "queue": "q", "interval": "5", key: value}
    body = ", ".join(f"{name}: {text}" for name, text in entry.items())
    file.write_text(f"QUEUES: {{q: {{backend: x.RedisQueue, host: redis}}}}\nSCHEDULERS: {{s: {{{body}}}}}\n")
    if (key, value) in {("options", "{}"), ("options", "{a: {b: 1}}")}:
        assert load(files=[file], environ={}, flags={}, compat="cloudforet").settings.schedules
        return
    with pytest.raises(ConfigError):
        load(files=[file], environ={}, flags={}, compat="cloudforet")


@table(
    "text",
    [
        "A = [", "A = {1: 2, None: 3, b'x': 4}\n", "A = B = 5\nA += 1\nC: int = 7\nD: int\n", "A, B = 1, 2\n", "A = -1\nB = -'x'\n", "A = 1j\n",
        "A = {**{}}\n", "def f():\n    SCHEDULERS = 1\n", "if True:\n    A = 1\n", "A = 'x' * 10**9\n", "\x00", "SCHEDULERS = {'a': {'interval': 5 * 60}}\n",
        f"A = {'[' * 90}{']' * 90}\n", f"A = {'(' * 5000}", "A = 1\nA[0] = 2\nA.b = 3\ndel A\n",
    ],
)  # fmt: skip
def test_any_module_gives_names_or_problems(tmp_path: Path, text: str) -> None:
    """Syntax errors, expressions, statements that change a value later: nothing runs, nothing escapes."""
    file = tmp_path / "conf.py"
    file.write_text(text)
    report = ImportReport()
    found = read_module(file, report)
    assert found is not None or report.problems


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (f"0x{'f' * 5000}", "a number too large for 64 bits"), (f"-0x{'f' * 5000}", "a number too large for 64 bits"),
        ("1e999", "an infinite number"), ("'\\ud800'", "half of a character"), (f"{{0x{'f' * 5000}: 1}}", "too large"),
    ],
)  # fmt: skip
def test_a_value_that_yaml_does_not_have_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, problem: str
) -> None:
    """Such a number cannot even be shown: it ended the conversion with a traceback."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "conf.py"
    file.write_text(
        f"QUEUES = {{'q': {{'backend': 'x.RedisQueue', 'host': 'redis'}}}}\nSCHEDULERS = {{'s': {{'interval': {value}}}}}\n"
    )
    with pytest.raises(ConfigError, match=problem):
        load(files=[file], environ={}, flags={}, compat="cloudforet")


BEFORE = "SCHEDULERS = {'s': {'backend': 'a.B', 'queue': 'q', 'interval': 60}}\nOTHER = {'a': 1}\n"


@table(
    "text",
    [
        "SCHEDULERS.update({'t': {}})\n", "SCHEDULERS['s'].update(queue='r')\n", "SCHEDULERS.setdefault('t', {})['queue'] = 'r'\n", "SCHEDULERS.__setitem__('t', {})\n",
        "del SCHEDULERS['s']\n", "del SCHEDULERS\n", "SCHEDULERS['s']['queue'] = 'r'\n", "SCHEDULERS |= {}\n", "from base import *\n",
        "from base import SCHEDULERS\n", "import base as SCHEDULERS\n", "for SCHEDULERS in (): pass\n", "with open('x') as SCHEDULERS: pass\n",
        "SCHEDULERS, X = {}, 1\n", "(SCHEDULERS := {})\n", "X = [SCHEDULERS := {}]\n", "if X:\n    SCHEDULERS = {}\n",
        "def f():\n    global SCHEDULERS\n    SCHEDULERS = {}\nf()\n", "def f():\n    SCHEDULERS['t'] = {}\nf()\n", "def SCHEDULERS(): pass\n",
        "A = SCHEDULERS\nA['t'] = {}\n", "A = {'x': SCHEDULERS}\nA['x'].clear()\n", "x = SCHEDULERS['s']\nx['queue'] = 'r'\n",
        "for each in SCHEDULERS.values():\n    each['queue'] = 'r'\n", "fill(SCHEDULERS)\n", "X = filled(into=SCHEDULERS['s'])\n",
        "try:\n    pass\nexcept OSError as SCHEDULERS:\n    pass\n", "match 1:\n    case SCHEDULERS: pass\n",
    ],
)  # fmt: skip
def test_a_value_that_code_may_change_is_a_problem(tmp_path: Path, text: str) -> None:
    """What was written first is not what the service ran by: schedules would be lost, or go to another queue."""
    file = tmp_path / "conf.py"
    file.write_text(BEFORE + text)
    report = ImportReport()

    found = read_module(file, report)

    assert found is not None
    assert "SCHEDULERS" not in found.value
    assert any(each.path == "SCHEDULERS" and "would have to run" in each.message for each in report.problems)


@pytest.mark.parametrize(
    "text",
    [
        "print(SCHEDULERS, len(OTHER))\n", "def f(SCHEDULERS):\n    SCHEDULERS['t'] = {}\n", "def f():\n    SCHEDULERS = {}\n    return SCHEDULERS\n",
        "class X:\n    SCHEDULERS = {}\n", "Q = SCHEDULERS['s']['queue']\n", "OTHER.update(b=2)\n", "SCHEDULERS.get('t')\n", "import os.path\n",
        "A = SCHEDULERS\nA = {}\nA['t'] = {}\n", "'text'\npass\nassert SCHEDULERS\n",
    ],
)  # fmt: skip
def test_a_value_that_code_only_reads_counts(tmp_path: Path, text: str) -> None:
    """Beside it only what is changed is left out, with a notice."""
    file = tmp_path / "conf.py"
    file.write_text(BEFORE + text)
    report = ImportReport()

    found = read_module(file, report)

    assert found is not None
    assert report.problems == []
    assert found.plain()["SCHEDULERS"] == {"s": {"backend": "a.B", "queue": "q", "interval": 60}}
    assert ("OTHER" in found.value) is ("OTHER.update" not in text)
    assert any("OTHER: may be changed" in notice for notice in report.notices) is ("OTHER.update" in text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a0 = [1]\n" + "".join(f"a{n + 1} = [{', '.join([f'a{n}'] * 10)}]\n" for n in range(9)), "more than 200,000 values"),
        ("a = []\n" + "a = [a]\n" * 3000, "nested deeper than 64 levels"),
        (f"a = [{'1, ' * 1000}]\n" + "".join(f"b{n} = a\n" for n in range(1000)), "more than 200,000 values"),
    ],
)  # fmt: skip
def test_names_do_not_make_a_module_larger_than_a_file_may_be(tmp_path: Path, text: str, problem: str) -> None:
    """As aliases of YAML do not: a list of lists by name is small to write and takes for ever to walk through."""
    file = tmp_path / "conf.py"
    file.write_text(text)
    report = ImportReport()
    read_module(file, report)
    assert any(problem in each.message for each in report.problems)


def test_a_module_is_a_regular_file(tmp_path: Path) -> None:
    """A device has no end, and a pipe keeps whoever opens it."""
    (tmp_path / "conf.py").symlink_to("/dev/zero")
    report = ImportReport()
    assert read_module(tmp_path / "conf.py", report) is None
    assert "cannot be read: no regular file" in report.problems[0].message
