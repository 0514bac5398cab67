"""Layers: which source wins, and how two of them become one."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from supervisor.app.configuration import load
from supervisor.settings.document import format_path, parse_path
from supervisor.settings.overrides import Flag
from supervisor.settings.sections.models import Settings
from tests.kit.tables import table

SOURCES = ["image", "first file", "second file", "conf.d/1", "conf.d/2", "variable", "flag"]


def give(desk: Any, sources: list[str]) -> tuple[dict[str, str], dict[str, object]]:
    """Let each of ``sources`` set its own name as the replica, and a key that nobody else sets."""
    environ: dict[str, str] = {}
    flags: dict[str, object] = {}
    for index, source in enumerate(SOURCES):
        if source not in sources:
            continue
        text = f"replica: r{index}\nschedules: {{a: {{job: x, every: 1m, args: {{k{index}: {index}}}}}}}\n"
        if source == "variable":
            environ |= {
                "TENURE_REPLICA": f"r{index}",
                "TENURE_SCHEDULES__A__ARGS__K5": "5",
                "TENURE_SCHEDULES__A__JOB": "x",
                "TENURE_SCHEDULES__A__EVERY": "1m",
            }
        elif source == "flag":
            flags |= {
                "replica": f"r{index}",
                "schedules.a.args.k6": "6",
                "schedules.a.job": "x",
                "schedules.a.every": "1m",
            }
        elif source == "image":
            environ |= {"TENURE_DEFAULTS": str(desk.write("image/defaults.yaml", text))}
        elif source.startswith("conf.d"):
            desk.write(f"{source}.yaml", text)
        else:
            desk.add(text, f"{source.split()[0]}.yaml")
    if not desk.files:
        desk.add("", "empty.yaml")
    return environ, flags


@pytest.mark.parametrize(("lower", "upper"), list(combinations(SOURCES, 2)))
def test_of_two_sources_the_later_wins_and_both_are_kept(lower: str, upper: str, desk: Any) -> None:
    """Every pair of sources: scalars of the upper one, mappings of both."""
    loaded = desk.load(*give(desk, [lower, upper]))
    low, high = SOURCES.index(lower), SOURCES.index(upper)
    assert loaded.settings.replica == f"r{high}"
    assert loaded.settings.schedules["a"].args == {f"k{low}": low, f"k{high}": high}
    assert loaded.origins["replica"] != loaded.origins[f"schedules.a.args.k{low}"]


def test_all_sources_together_keep_their_order(desk: Any) -> None:
    """Pairs could agree while a chain of seven does not."""
    loaded = desk.load(*give(desk, SOURCES))
    assert loaded.settings.replica == "r6"
    assert loaded.settings.schedules["a"].args == {f"k{n}": n for n in range(7)}
    assert [file.name for file in loaded.files][:2] == ["defaults.yaml", "first.yaml"]


def test_defaults_of_an_image_are_checked_and_trusted_like_a_file_that_nobody_named(desk: Any) -> None:
    """A fault in them is told with its line; what others may write sets nothing, and neither does an absent file."""
    file = desk.write("defaults.yaml", "cluster: planted\nweb: {prot: 1}\n")
    variables = {"TENURE_DEFAULTS": str(file)}
    assert desk.lines(variables) == ["defaults.yaml:2: web.prot: is not a setting; did you mean port?"]

    file.chmod(0o666)
    [problem] = desk.problems(variables)
    assert problem.message.startswith("is not read as TENURE_DEFAULTS: everybody may write to it")
    assert desk.lines({"TENURE_DEFAULTS": str(file.with_name("absent"))}) == [
        "absent: cannot be read: No such file or directory"
    ]


def test_defaults_that_are_exchanged_after_they_were_judged_are_not_read(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that is open is the one that counts."""
    file = desk.write("defaults.yaml", "cluster: mine\n")
    monkeypatch.setattr("supervisor.settings.loader.distrust_path", lambda path: path.chmod(0o666) or "")

    (problem,) = desk.problems({"TENURE_DEFAULTS": str(file)})
    assert problem.message.startswith("is not read by itself: everybody may write to it")


def test_defaults_of_an_image_lie_below_files_of_cloudforet_too(desk: Any) -> None:
    """They are read by an importer, whose settings are as much the user's."""
    variables = {"TENURE_DEFAULTS": str(desk.write("defaults.yaml", "web: {host: 0.0.0.0, port: 1}\n"))}
    file = desk.write("service.yaml", "GLOBAL: {}\n")
    local = desk.write("local.yaml", "web: {host: 127.0.0.1}\n")
    settings = load(files=[file, local], environ=variables, flags={}, compat="cloudforet").settings
    assert (settings.web.host, settings.web.port) == ("127.0.0.1", 1)


def test_lists_replace_and_do_not_add_up(desk: Any) -> None:
    """A list that grew with every layer could never be shortened."""
    desk.add("jobs: [a, b]\nworkers: {w: {kind: sync, queues: [x, y]}}\n", "1.yaml")
    desk.add("jobs: [c]\nworkers: {w: {queues: [z]}}\n", "2.yaml")
    settings = desk.load().settings
    assert settings.jobs == ("c",)
    assert settings.workers["w"].queues == ("z",)


@pytest.mark.parametrize("null", ["null", "~"])
def test_null_goes_back_to_the_default(null: str, desk: Any) -> None:
    """One key, one schedule, one pool, or a whole section."""
    desk.add(
        "cluster: a\nweb: {port: 1, host: b}\nlog: {level: debug}\nworkers: {w: {kind: sync}, v: {kind: async}}\n"
        "schedules: {s: {job: x, every: 1m}, t: {job: x, every: 1m, timeout: 1s}}\n",
        "1.yaml",
    )
    desk.add(
        f"cluster: {null}\nweb:\n  port: {null}\nlog: {null}\nworkers:\n  w: {null}\nschedules:\n  s: {null}\n  t:\n    timeout: {null}\n",
        "2.yaml",
    )
    settings = desk.load().settings
    assert settings.cluster == "default"
    assert (settings.web.port, settings.web.host) == (8080, "b")
    assert settings.log == Settings().log
    assert set(settings.workers) == {"v"}
    assert set(settings.schedules) == {"t"}
    assert settings.schedules["t"].timeout_s is None


def test_null_is_a_value_in_the_arguments_of_a_job(desk: Any) -> None:
    """A job may tell None from its own default."""
    desk.add("schedules: {s: {job: x, every: 1m, args: {a: null, b: 1}}}\n", "1.yaml")
    desk.add("schedules: {s: {args: {b: null}}}\n", "2.yaml")
    assert desk.load().settings.schedules["s"].args == {"a": None, "b": None}


def test_an_empty_mapping_empties_a_table_but_not_a_section(desk: Any) -> None:
    """`workers: {}` is how a replica says that it runs no jobs; `web: {}` says nothing."""
    desk.add(
        "workers: {w: {kind: sync}}\nweb: {port: 1}\nschedules: {s: {job: x, every: 1m, args: {a: 1}}}\n", "1.yaml"
    )
    desk.add("workers: {}\nweb: {}\nschedules: {s: {args: {}}}\n", "2.yaml")
    settings = desk.load().settings
    assert settings.workers == {}
    assert settings.web.port == 1
    assert settings.schedules["s"].args == {}


def test_naming_a_pool_in_a_file_replaces_the_default_pools(desk: Any) -> None:
    """Who lists pools lists all of them."""
    desk.add("workers: {mail: {kind: async}}\n")
    assert set(desk.load().settings.workers) == {"mail"}


def test_a_variable_or_flag_adjusts_a_default_pool(desk: Any) -> None:
    """More processes on a larger machine need no file."""
    settings = desk.load({"TENURE_WORKERS__CPU__PROCESSES": "8"}, {"workers.io.concurrency": "7"}).settings
    assert settings.workers["cpu"] == Settings().workers["cpu"].model_copy(update={"processes": 8})
    assert settings.workers["io"].concurrency == 7
    assert desk.load({"TENURE_WORKERS": "{}"}).settings.workers == {}


@pytest.mark.parametrize(
    ("name", "text", "path", "value"),
    [
        ("TENURE_CLUSTER", "012", "cluster", "012"),
        ("TENURE_CLUSTER", "on", "cluster", "on"),
        ("TENURE_DATA_DIR", "/a b", "data_dir", "/a b"),
        ("TENURE_REDIS__CONNECT_TIMEOUT", "750ms", "redis.connect_timeout_s", 0.75),
        ("TENURE_REDIS__ALLOW_EVICTION", "true", "redis.allow_eviction", True),
        ("TENURE_WEB__PORT", "9000", "web.port", 9000),
        ("TENURE_LOG__LEVEL", "debug", "log.level", "debug"),
        ("TENURE_JOBS", "[a.b, c]", "jobs", ("a.b", "c")),
        ("TENURE_REPLICA", "null", "replica", "null"),
        ("TENURE_WEB", "{port: 1, host: 'a'}", "web.port", 1),
        ("TENURE_CLUSTER", "", "cluster", "default"),
    ],
)
def test_a_variable_is_read_by_the_type_of_its_setting(
    name: str, text: str, path: str, value: object, desk: Any
) -> None:
    """Text needs no quoting in a variable; an empty variable counts as not set."""
    found = desk.load({name: text}).settings
    for step in path.split("."):
        found = getattr(found, step)
    assert found == value


def test_variables_find_ids_without_regard_to_case_and_separators(desk: Any) -> None:
    """A shell cannot export TENURE_SCHEDULES__token-cleanup__EVERY."""
    desk.add("schedules: {Token-Cleanup: {job: x, every: 1m}, 'a.b/c': {job: x, every: 1m}}\n")
    schedules = desk.load(
        {"TENURE_SCHEDULES__TOKEN_CLEANUP__EVERY": "2m", "TENURE_SCHEDULES__A_B_C__EVERY": "3m"}
    ).settings.schedules
    assert set(schedules) == {"Token-Cleanup", "a.b/c"}
    assert (schedules["Token-Cleanup"].every_s, schedules["a.b/c"].every_s) == (120, 180)


def test_a_section_variable_lies_under_its_settings(desk: Any) -> None:
    """The more exact name wins, whatever the alphabet says."""
    assert desk.load({"TENURE_WEB__PORT": "2", "TENURE_WEB": "{port: 1}"}).settings.web.port == 2


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("TENURE_WEB__PROT", "did you mean TENURE_WEB__PORT?"),
        ("TENURE_WEB_PORT", "did you mean TENURE_WEB__PORT?"),
        ("TENURE_REDIS_URL", "did you mean TENURE_REDIS__URL?"),
        ("TENURE_CLUSTR", "did you mean TENURE_CLUSTER?"),
        ("TENURE_WEB__PORT__X", "did you mean TENURE_WEB__PORT?"),
        ("TENURE_WEB__", "did you mean TENURE_WEB?"),
        ("TENURE_QQQQQQQQQ", "every variable that begins with TENURE_ is one: unset it, or write TENURE_SECTION__KEY"),
    ],
)
def test_an_unknown_variable_is_a_problem_with_a_suggestion(name: str, remedy: str, desk: Any) -> None:
    """One underscore too few would otherwise be a setting that silently does nothing."""
    assert desk.lines({name: "1"}) == [f"{name}: is not a setting; {remedy}"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TENURE_CONFIG", "/a:/b"), ("TENURE_JOBS_DATABASE_URL", "x"), ("TENURE_RUN_ID", "x"), ("TENURE_SCHEDULE", "x"),
        ("TENURE_SERVICE_HOST", "10.0.0.1"), ("TENURE_SERVICE_PORT", "80"), ("TENURE_SERVICE_PORT_HTTP", "80"),
        ("TENURE_PORT", "tcp://10.0.0.1:80"), ("TENURE_PORT_80_TCP", "tcp://10.0.0.1:80"), ("TENURE_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("TENURE_WEB_PORT", "tcp://10.0.0.1:80"), ("TENURE_WEB_SERVICE_HOST", "10.0.0.1"), ("OTHER", "x"), ("TENURE_FOO", ""),
    ],
)  # fmt: skip
def test_variables_that_others_set_are_left_alone(name: str, value: str, desk: Any) -> None:
    """Kubernetes puts a set of these into every pod beside a Service called tenure."""
    assert desk.load({name: value}).settings == Settings()


def test_flags_are_read_like_variables_and_name_their_option(desk: Any) -> None:
    """A problem with --port must not speak of --set."""
    settings = desk.load(
        flags={
            "web.port": "9",
            "jobs": "[a]",
            "redis.username": "",
            'schedules["a.b"].job': "x",
            'schedules["a.b"].every': "1m",
        }
    ).settings
    assert (settings.web.port, settings.jobs, settings.redis.username) == (9, ("a",), None)
    assert settings.schedules["a.b"].every_s == 60
    assert desk.load(flags={"web.port": Flag("--port", 7)}).settings.web.port == 7
    assert desk.lines(
        {},
        {
            "web.port": Flag("--port", 70_000),
            "web.host": "x",
            "log.format": "x",
            "web.prot": "1",
            "a..b": "1",
            "web.port.x": "1",
            "jobs.x": "1",
        },
    ) == [
        "--set web.prot: is not a setting; did you mean web.port?",
        "--set a..b: is not a setting; write section.key=value",
        "--set web.port.x: is not a setting; did you mean web.port?",
        "--set jobs.x: is not a setting; did you mean jobs?",
        "--port: web.port: must be at most 65535, got 70000",
        "--set log.format: log.format: must be auto, json or console, got 'x'",
    ]


@pytest.mark.parametrize("name", ["TENURE_WEB__PORT", "TENURE_JOBS"])
def test_a_trap_in_a_variable_names_the_variable(name: str, desk: Any) -> None:
    """The same rules as in a file; a variable has no line."""
    (line,) = desk.lines({name: "[012]" if name == "TENURE_JOBS" else "012"})
    assert line.startswith(f"{name}: ")
    assert "octal" in line


@pytest.mark.parametrize("path", [("a",), ("a", "b-c", "d/e:f"), ("schedules", "a.b", "args", "x y"), ("a", "[b]")])
def test_a_path_reads_back_as_it_was_written(path: tuple[str, ...]) -> None:
    """What a problem prints can be pasted into --set."""
    assert parse_path(format_path(path)) == path


@table("text", ["", ".", "a.", ".a", "a..b", "a[0]", 'a["b"', "a=b"])
def test_what_is_no_path_is_refused(text: str) -> None:
    """None, and no half of a path."""
    assert parse_path(text) is None
