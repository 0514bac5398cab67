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


@pytest.mark.parametrize(
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
