"""From files to settings: what is read, in which order, and that everything wrong is said at once."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.app.configuration import load
from supervisor.core.errors import ConfigError
from supervisor.settings.render import to_yaml
from supervisor.settings.sections.models import Settings

Problems = Callable[[str], list[str]]


def test_nothing_given_is_the_defaults(desk: Any) -> None:
    """`tenure run` in an empty directory works."""
    loaded = desk.load()
    assert loaded.settings == Settings()
    assert loaded.origins == {}
    assert loaded.files == ()


def test_every_problem_is_reported_at_once_in_reading_order(problems_of: Problems) -> None:
    """Line, path, what was seen, what to do: and no second round."""
    assert problems_of(
        "web: {port: '8080'}\n"
        "election:\n"
        "  lease_duraton: 9s\n"
        "  renew_period: 5\n"
        "jobs: [./x.py]\n"
        "log: {level: warn}\n"
        "workers:\n"
        "  io: {kind: asink, processes: 0}\n"
        "schedules:\n"
        "  a: {every: 5m}\n"
        "  b: {job: x.y, phase: 5m, cron: '* * * * *'}\n"
        "  c: {job: x.y, cron: '61 * * * *'}\n"
        "  d: {job: x.y, cron: '* * * * *', timezone: Europe/Berln}\n"
        "  e: {job: x.y}\n"
        "queues: {beat_period: 6s}\n"
        "cluster: on\n"
    ) == [
        "tenure.yaml:1: web.port: must be a whole number, got '8080'; remove the quotes",
        "tenure.yaml:3: election.lease_duraton: is not a setting; did you mean lease_duration?",
        "tenure.yaml:4: election.renew_period: is not a duration, got 5; write 5s if seconds are meant",
        "tenure.yaml:5: jobs[0]: must be the name of a module, got './x.py'; write package.module, not a path",
        "tenure.yaml:6: log.level: must be debug, info, warning or error, got 'warn'; did you mean warning?",
        "tenure.yaml:8: workers.io.kind: must be async or sync, got 'asink'; did you mean async?",
        "tenure.yaml:8: workers.io.processes: must be at least 1, got 0",
        "tenure.yaml:10: schedules.a.job: is missing; add it",
        "tenure.yaml:11: schedules.b.phase: has no effect without every; remove it",
        'tenure.yaml:12: schedules.c.cron: cron "61 * * * *": minute "61" at character 1: 61 is not within 0-59; use 0-59',
        "tenure.yaml:13: schedules.d.timezone: timezone 'Europe/Berln' is not in the time zone database; did you mean Europe/Berlin?",
        "tenure.yaml:14: schedules.e: has none of every, cron, calendar_interval, at, after_completion, when and after; add one, e.g. every: 10m",
        "tenure.yaml:15: queues.beat_period: 6s is more than a third of session_lease (15s); a worker must be able to miss two beats and keep its runs; shorten it",
        "tenure.yaml:16: cluster: 'on' is a truth value to some YAML parsers and text to others; write true or false, or quote it",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("redis: here\n", "redis: must be a mapping of settings, got text"),
        ("redis: [a]\n", "redis: must be a mapping of settings, got a list"),
        ("workers: io\n", "workers: must be a mapping from names to settings, got text"),
        ("workers: {io: 3}\n", "workers.io: must be a mapping of settings, got a number"),
        ("jobs: jobs.identity\n", "jobs: must be a list, got text; write [jobs.identity]"),
        ("jobs: {a: b}\n", "jobs: must be a list, got a mapping"),
        ("schedules: {a: {job: x, when: {every: 5m}}}\n", "schedules.a.when: must be a list, got a mapping; write [{every: …}]"),
        ("schedules: {a: {job: x, every: 5m, exclude: 2026-12-25}}\n", "schedules.a.exclude: must be a list, got text; write [2026-12-25]"),
        ("schedules: {a: {job: x, cron: ['0 1 * * *', '0 2 * * *']}}\n", "schedules.a.cron: must be text, got a list; several go into when: [{cron: …}, …]"),
        ("schedules: {a: {job: x, at: [2027-01-01]}}\n", "schedules.a.at: must be text, got a list; several go into when: [{at: …}, …]"),
        ("schedules: {a: {job: x, every: 5m, exclude: [25.12.2026]}}\n", "schedules.a.exclude[0]: '25.12.2026' is neither a day nor an expression of five fields; a day is 2026-12-25, weekends are '* * * * SAT,SUN'"),
        ("schedules: {a: {job: x, every: 5m, exclude: [weekends]}}\n", "schedules.a.exclude[0]: no calendar is called 'weekends'; define it under calendars, such as weekends: {weekdays: [sat, sun]}"),
        ("jobs: [[a]]\n", "jobs[0]: must be text, got a list"),
        ("schedules: {a: {job: x, every: 5m, args: [1]}}\n", "schedules.a.args: must be a mapping from names to values, got a list"),
        ("version: 2\n", "version: must be at most 1, got 2"),
        ("version: true\n", "version: must be a whole number, got true"),
        ("version: '1'\n", "version: must be a whole number, got '1'; remove the quotes"),
        ("cluster: 7\n", "cluster: must be text, got 7; quote it"),
        ("cluster: a b\n", "cluster: must be 1 to 64 of letters, digits and . _ -, starting with a letter or digit, got 'a b'"),
        ("web: {port: true}\n", "web.port: must be a whole number, got true"),
        ("web: {port: 80.0}\n", "web.port: must be a whole number, got 80.0"),
        ("web: {port: 65536}\n", "web.port: must be at most 65535, got 65536"),
        ("redis: {allow_eviction: 1}\n", "redis.allow_eviction: must be true or false, got 1"),
        ("redis: {allow_eviction: 'true'}\n", "redis.allow_eviction: must be true or false, got 'true'; remove the quotes"),
        ("supervision: {grace: 2h}\n", "supervision.grace: must be at most 1h, got '2h'"),
        ("supervision: {grace: 2.5}\n", "supervision.grace: is not a duration, got 2.5; write 2.5s if seconds are meant"),
        ("supervision: {grace: fast}\n", "supervision.grace: is not a duration, got 'fast'; write 250ms, 15s, 5m, 2h or 7d"),
        ("election: {lease_duration_s: 5.0}\n", "election.lease_duration_s: is not a setting; did you mean lease_duration?"),
        ("workers: {io: {kind: async, queues: []}}\n", "workers.io.queues: must have at least 1 entries, got a list"),
        ("workers: {io: {kind: async, queues: [a, b, a]}}\n", "workers.io.queues[2]: 'a' is listed twice; remove one"),
        ("workers: {'a b': {kind: async}}\n", 'workers["a b"]: must be 1 to 64 of letters, digits and . _ -, starting with a letter or digit'),
        ("jobs: [a.b, a.b]\n", "jobs[1]: 'a.b' is listed twice; remove one"),
        ("data_dir: ''\n", "data_dir: should have at least 1 character, got ''"),
        ("SCHEDULERS: {}\nQUEUES: {}\nweb: {prot: 1}\n", "is a configuration of Cloudforet's, and not of Tenure's; read it with --compat cloudforet, or once with tenure config convert"),
        ("application_worker: {}\n", "is a configuration of Cloudforet's, and not of Tenure's; read it with --compat cloudforet, or once with tenure config convert"),
        ("frobnicate: 1\n", f"frobnicate: is not a setting; known here: {', '.join(sorted(Settings.model_fields))}"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_clear_line(text: str, problem: str, problems_of: Problems) -> None:
    """What was seen is quoted, so that the reader does not have to look it up."""
    assert problems_of(text) == [f"tenure.yaml:1: {problem}"]


def test_a_long_value_is_cut(problems_of: Problems) -> None:
    """One line stays one line."""
    (line,) = problems_of(f"cluster: {'x' * 5000}\n")
    assert len(line) < 250


def test_one_bad_layer_does_not_hide_another(desk: Any) -> None:
    """A syntax error ends one file, not the report."""
    desk.add("a: [1\n", "a.yaml")
    desk.add("web: {prot: 1}\n", "b.yaml")
    assert desk.lines({"TENURE_LOG__LEVEL": "loud"}) == [
        "a.yaml:2:1: is not YAML: did not find expected ',' or ']'",
        "b.yaml:1: web.prot: is not a setting; did you mean port?",
        "TENURE_LOG__LEVEL: log.level: must be debug, info, warning or error, got 'loud'",
    ]


def test_a_variable_that_is_no_utf8_is_named_as_such(desk: Any) -> None:
    """The answer was about JSON and the half of a character that Python makes of each such byte."""
    desk.add("schedules: {}\nredis: {username: '${env:A}'}\n")
    assert desk.lines({"TENURE_CLUSTER": "\udcff", "A": "\udcff"}) == [
        "tenure.yaml:2: redis.username: the environment variable A is not UTF-8; or write $${ for a literal ${",
        "TENURE_CLUSTER: cluster: is not UTF-8; write it as UTF-8",
    ]


def test_keys_that_start_with_x_are_free_in_sections(desk: Any) -> None:
    """They hold anchors and notes. In a table the same name is an id like any other."""
    desk.add(
        "x-pool: &pool {kind: async, queues: [a], x-why: [1, {y: 2}]}\n"
        "redis: {x-note: hello}\n"
        "workers: {x-ray: {<<: *pool, processes: 3}}\n"
    )
    found = desk.load().settings
    assert set(found.workers) == {"x-ray"}
    assert found.workers["x-ray"].processes == 3


def test_a_directory_is_its_yaml_files_by_name(desk: Any) -> None:
    """Hidden files are an editor's; a mounted ConfigMap keeps its versions behind hidden names too."""
    for name, text in {
        "conf/20.yaml": "cluster: second\n", "conf/10.yaml": "cluster: first\nweb: {port: 1}\n", "conf/30.yml": "web: {host: a}\n",
        "conf/.hidden.yaml": "broken: [", "conf/notes.txt": "broken: [", "conf/sub.yaml/x": "broken: [",
        "conf/conf.d/05.yaml": "log: {level: debug}\n",
    }.items():  # fmt: skip
        desk.write(name, text)
    desk.files = [desk.directory / "conf"]
    loaded = desk.load()
    assert [file.name for file in loaded.files] == ["10.yaml", "20.yaml", "30.yml", "05.yaml"]
    assert loaded.settings.cluster == "second"
    assert (loaded.settings.web.port, loaded.settings.web.host, loaded.settings.log.level) == (1, "a", "debug")


@pytest.mark.parametrize("place", ["more.yaml", "conf.d/more.yaml"])
def test_a_fifo_that_nobody_named_is_a_problem_and_holds_nothing_up(desk: Any, place: str) -> None:
    """Who may write into a directory of files would keep every start waiting."""
    desk.write("tenure.yaml", "cluster: one\n")
    desk.files.append(desk.directory)
    (desk.directory / place).parent.mkdir(exist_ok=True)
    os.mkfifo(desk.directory / place)

    (problem,) = desk.problems()
    assert (problem.where, problem.message) == (place, "cannot be read: no regular file")


def test_a_pipe_that_is_named_is_read(desk: Any) -> None:
    """As a shell makes one for `--config <(...)`."""
    reading, writing = os.pipe()
    os.write(writing, b"cluster: piped\n")
    os.close(writing)
    desk.files.append(Path(f"/dev/fd/{reading}"))

    assert desk.load().settings.cluster == "piped"
    os.close(reading)


def test_conf_d_lies_over_all_files_and_is_read_once(desk: Any) -> None:
    """A package drops a file there; it wins over what the operator's files say beside it."""
    desk.add("cluster: a\n", "a.yaml")
    desk.add("cluster: b\n", "b.yaml")
    desk.write("conf.d/2.yaml", "cluster: two\n")
    desk.write("conf.d/1.yaml", "cluster: one\nreplica: r1\n")
    loaded = desk.load()
    assert [file.name for file in loaded.files] == ["a.yaml", "b.yaml", "1.yaml", "2.yaml"]
    assert (loaded.settings.cluster, loaded.settings.replica) == ("two", "r1")
    assert loaded.origins["cluster"].endswith("conf.d/2.yaml:1")


@pytest.mark.parametrize(
    ("place", "leads_to"),
    [(place, link) for place in ("conf.d", "more/conf.d") for link in ("conf.d", "absent", None)] + [("more", None)],
)
def test_a_directory_that_cannot_be_listed_is_a_problem(
    desk: Any, monkeypatch: pytest.MonkeyPatch, place: str, leads_to: str | None
) -> None:
    """Taken for none, what it says about schedules and Redis is forgotten. A loop, a link to nowhere, no rights."""
    desk.add("cluster: one\n")
    desk.write("more/tenure.yaml", "web: {port: 1}\n")
    desk.files.append(desk.directory / "more")
    directory = desk.directory / place
    if leads_to is not None:
        directory.symlink_to(directory.with_name(leads_to))
        reason = "Too many levels of symbolic links" if leads_to == "conf.d" else "No such file or directory"
    else:
        reason, listed = os.strerror(errno.EACCES), Path.iterdir

        def refuse(path: Path) -> Iterator[Path]:
            if path == directory:
                raise PermissionError(errno.EACCES, reason)
            return listed(path)

        monkeypatch.setattr(Path, "iterdir", refuse)

    assert desk.lines() == [f"{place}: cannot be read: {reason}; check path and rights"]


def test_a_file_or_directory_that_gives_nothing_is_a_problem(desk: Any) -> None:
    """A wrong path must not silently mean the defaults."""
    desk.files = [desk.directory / "no.yaml", desk.directory]
    assert desk.lines() == [
        "no.yaml: cannot be read: No such file or directory",
        f"{desk.directory}: holds no *.yaml file; name a file, or put one there",
    ]


def test_thousands_of_schedules_load(desk: Any) -> None:
    """The limits leave room for every configuration that a person or a generator writes."""
    desk.add("schedules:\n" + "".join(f"  s{n}: {{job: a.b, every: 5m, args: {{n: {n}}}}}\n" for n in range(1000)))
    assert len(desk.load().settings.schedules) == 1000


_PIECES = st.sampled_from(
    ["redis: ", "jobs: ", "workers: ", "schedules: ", "a: ", "web:\n  port: ", "{job: x, every: 1m}", "{kind: sync}", "null", "on", "[", "]",
     "{", "}", "'", '"', "- ", "? ", ": ", "&a ", "*a", "<<: ", "!t ", "|", "\n", "\n  ", "\t", "\x00", "\u2028", "#", "---\n", "5m", "012", "1",
     "${env:A}", "${file:/}", "$${", "x-a: 1\n", "%", "@", "," , " "]
)  # fmt: skip


@given(pieces=st.lists(_PIECES, max_size=12), variable=_PIECES, flag=_PIECES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_input_ends_in_anything_but_settings_or_problems(
    pieces: list[str], variable: str, flag: str, tmp_path: Path
) -> None:
    """A traceback is never the answer to a wrong file, variable or flag."""
    path = tmp_path / "any.yaml"
    path.write_text("".join(pieces), encoding="utf-8")
    environ = {"A": "x", "TENURE_WORKERS": variable.replace("\0", "")}
    with suppress(ConfigError):
        loaded = load(files=[path], environ=environ, flags={"schedules.a.args": flag})
        assert to_yaml(loaded.settings)


def test_a_command_of_a_plugin_that_is_no_list_is_not_repeated(desk: Any) -> None:
    """Its arguments may be secrets, and problems are logged."""
    desk.add("plugins: {p: {command: tool --key hunter2}}\n")

    (problem,) = desk.problems()

    assert "hunter2" not in str(problem)
    assert problem.path == "plugins.p.command"
