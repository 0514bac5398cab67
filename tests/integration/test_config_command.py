"""``tenure config`` as a user runs it: exit codes, streams, default files, secrets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
import yaml

from tests.kit import launcher

ROOT = Path(__file__).resolve().parents[2]
SECRET = "hunter2"

Result = subprocess.CompletedProcess[str]
Tenure = Callable[..., Result]


@pytest.fixture
def tenure(tmp_path: Path) -> Tenure:
    """Run the command in an empty directory, without any TENURE_ variable but those given."""

    def run(*arguments: str, cwd: Path = tmp_path, **variables: str) -> Result:
        return launcher.tenure(cwd, *arguments, **{"COLUMNS": "100", **variables})

    return run


def piped(directory: Path, *words: str, stdin: IO[str] | int, stdout: IO[str] | int = subprocess.DEVNULL) -> Result:
    """Run a command with files in the place of its standard streams."""
    return subprocess.run(
        [sys.executable, "-m", "tenure", *words],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def test_an_empty_directory_is_a_valid_configuration(tenure: Tenure) -> None:
    """Zero configuration is the first thing that anybody tries."""
    result = tenure("config", "validate")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "ok: defaults (0 schedules, 2 pools)\n"


def test_problems_are_one_line_each_on_stderr_with_exit_code_78(tenure: Tenure, tmp_path: Path) -> None:
    """All sources at once: file, conf.d, variable, flag. Nothing on standard output."""
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "tenure.yaml").write_text("web: {prot: 1}\ncluster: on\n")
    (tmp_path / "conf.d/a.yaml").write_text("election: {lease_duration: 5}\n")
    result = tenure("config", "validate", "--set", "log.level=loud", TENURE_WEB__PORT="x")
    assert result.returncode == 78
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "tenure.yaml:1: web.prot: is not a setting; did you mean port?",
        "tenure.yaml:2: cluster: 'on' is a truth value to some YAML parsers and text to others; write true or false, or quote it",
        "conf.d/a.yaml:1: election.lease_duration: is not a duration, got 5; write 5s if seconds are meant",
        "TENURE_WEB__PORT: web.port: must be a whole number, got 'x'",
        "--set log.level: log.level: must be debug, info, warning or error, got 'loud'",
    ]


def test_validate_checks_schedules_against_the_jobs(tenure: Tenure, tmp_path: Path) -> None:
    """A module that does not import, and a schedule whose job does not exist, are found before a start."""
    (tmp_path / "own.py").write_text("from tenure import job\n@job('own.f')\ndef f(x: int) -> None: ...\n")
    good = tmp_path / "good.yaml"
    good.write_text("jobs: [own]\nschedules: {a: {job: own.f, every: 1m, args: {x: 1}}}\n")
    assert tenure("config", "validate", str(good)).returncode == 0

    bad = tmp_path / "bad.yaml"
    bad.write_text("jobs: [own]\nschedules:\n  a: {job: own.g, every: 1m}\n  b: {job: own.f, every: 1m, queue: q}\n")
    result = tenure("config", "validate", str(bad))
    assert result.returncode == 78
    assert "bad.yaml:3: schedules.a.job: no job is called 'own.g'; did you mean own.f?" in result.stderr
    assert "bad.yaml:4: schedules.b.args: " in result.stderr
    assert tenure("config", "validate", "--no-jobs", str(bad)).returncode == 0

    missing = tmp_path / "missing.yaml"
    missing.write_text("jobs:\n  - own\n  - no_such_module\nschedules: {a: {job: x, every: 1m}}\n")
    result = tenure("config", "validate", str(missing))
    assert (result.returncode, len(result.stderr.splitlines())) == (78, 1)
    assert "missing.yaml:3: jobs[1]: there is no module no_such_module" in result.stderr


def test_default_files_are_looked_for_in_order_and_replaced_by_what_is_named(tenure: Tenure, tmp_path: Path) -> None:
    """--config, then TENURE_CONFIG, then ./tenure.yaml, then ./config/tenure.yaml."""
    (tmp_path / "config").mkdir()
    for name in ("config/tenure.yaml", "tenure.yaml", "a.yaml", "b.yaml", "c.yaml"):
        path = tmp_path / name
        path.write_text(f"cluster: {path.stem}\nreplica: from-{name.replace('/', '-').removesuffix('.yaml')}\n")

    def replica(*arguments: str, **variables: str) -> str:
        result = tenure("config", "show", *arguments, **variables)
        assert result.returncode == 0, result.stderr
        return str(yaml.safe_load(result.stdout)["replica"])

    assert replica() == "from-tenure"
    (tmp_path / "tenure.yaml").unlink()
    assert replica() == "from-config-tenure"
    assert replica(TENURE_CONFIG="a.yaml:b.yaml") == "from-b"
    assert replica("--config", "b.yaml", "-c", "a.yaml", TENURE_CONFIG="c.yaml") == "from-a"
    assert replica(TENURE_CONFIG="") == "from-config-tenure"
    result = tenure("config", "validate", "a.yaml", TENURE_CONFIG="no.yaml")
    assert result.stdout.startswith("ok: a.yaml ")


def test_a_file_that_is_named_must_exist(tenure: Tenure) -> None:
    """Falling back to defaults would start something else than what was asked for."""
    result = tenure("config", "show", "--config", "no.yaml")
    assert (result.returncode, result.stdout) == (78, "")
    assert result.stderr == "no.yaml: cannot be read: No such file or directory\n"


@pytest.mark.parametrize(
    "arguments", [("--set", "web.port"), ("--set",), ("--sett", "a=b"), ("-o", "xml"), ("extra",)], ids=" ".join
)
def test_a_wrong_command_line_is_a_usage_error(arguments: tuple[str, ...], tenure: Tenure) -> None:
    """Exit code 2 is for the command line, 78 for the configuration."""
    result = tenure("config", "show", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert "Error" in result.stderr


def test_show_tells_values_and_sources_and_no_secret(tenure: Tenure, tmp_path: Path) -> None:
    """Every form of output is searched for the secrets that went in by every way."""
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    (tmp_path / "tenure.yaml").write_text(
        f"redis: {{url: 'redis://app:{SECRET}@h/0', username: '${{env:WHO}}'}}\n"
        "schedules: {a: {job: x, every: 1m, args: {token: '${file:secret}'}}}\n"
    )
    variables = {"WHO": SECRET, "TENURE_REDIS__PASSWORD": SECRET}
    for arguments in ((), ("--sources",), ("-o", "json"), ("-o", "json", "--sources"), ("--write-config-to", "-")):
        result = tenure("config", "show", *arguments, **variables)
        assert result.returncode == 0, result.stderr
        assert SECRET not in result.stdout + result.stderr
        assert "redis://app:**********@h/0" in result.stdout
    found = json.loads(tenure("config", "show", "-o", "json", "--sources", **variables).stdout)
    assert found["redis.password"] == {"value": "**********", "origin": "TENURE_REDIS__PASSWORD"}
    assert found["redis.username"] == {"value": "${env:WHO}", "origin": "tenure.yaml:1"}
    assert found["schedules.a.args.token"] == {"value": "${file:secret}", "origin": "tenure.yaml:2"}
    assert found["web.port"] == {"value": 8080, "origin": "default"}


def test_a_written_configuration_means_the_same(tenure: Tenure, tmp_path: Path) -> None:
    """Freeze what is in effect, load the copy, get the same; the file appears whole or not at all."""
    target = tmp_path / "frozen/frozen.yaml"
    target.parent.mkdir()
    written = tenure(
        "config", "show", "--set", "web.port=9", "--write-config-to", str(target), TENURE_LOG__LEVEL="debug"
    )
    assert (written.returncode, written.stdout) == (0, "")
    shown = tenure("config", "show", "--config", str(target))
    assert shown.stdout == target.read_text()
    assert yaml.safe_load(shown.stdout)["web"]["port"] == 9
    assert yaml.safe_load(shown.stdout)["log"]["level"] == "debug"
    assert os.listdir(target.parent) == ["frozen.yaml"]  # noqa: PTH208 - names are what is compared


def test_a_configuration_that_cannot_be_written_is_exit_code_73(tenure: Tenure) -> None:
    """Cannot create, by sysexits.h."""
    result = tenure("config", "show", "--write-config-to", "no/such/dir/x.yaml")
    assert result.returncode == 73
    assert "cannot write the configuration to no/such/dir/x.yaml: No such file or directory" in result.stderr


def test_what_is_no_plain_file_is_written_to_and_not_replaced(tenure: Tenure, tmp_path: Path) -> None:
    """/dev/stdout is a link, and a named pipe somebody's: root would lose them to a file."""
    link, pipe = tmp_path / "link.yaml", tmp_path / "pipe"
    link.symlink_to("aim.yaml")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for target in (link, pipe):
            done = tenure("config", "show", "--set", "web.port=9", "--write-config-to", str(target))
            assert done.returncode == 0, done.stderr
        told = os.read(reader, 65_536).decode()
    finally:
        os.close(reader)

    assert (link.is_symlink(), pipe.is_fifo()) == (True, True)
    assert told == (tmp_path / "aim.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(told)["web"]["port"] == 9


@pytest.mark.parametrize("command", [("run",), ("config", "show")], ids=" ".join)
def test_a_file_that_the_configuration_is_read_from_is_not_replaced(
    command: tuple[str, ...], tenure: Tenure, tmp_path: Path
) -> None:
    """What is written masks secrets: the only file that has them would be lost. Any other file is replaced."""
    source = tmp_path / "conf/secret.yaml"
    source.parent.mkdir()
    source.write_text(text := f"redis: {{url: 'redis://127.0.0.1:1/0', password: {SECRET}}}\n")
    (tmp_path / "old.yaml").write_text("mine")

    refused = tenure(*command, "-c", "conf", "--write-config-to", str(source))
    written = tenure(*command, "-c", "conf", "--write-config-to", "old.yaml")

    assert (refused.returncode, refused.stdout) == (73, "")
    assert f"{source} is one of the files that are read, and secrets or comments in it would be lost" in refused.stderr
    assert source.read_text() == text
    assert written.returncode == 0, written.stderr
    assert yaml.safe_load((tmp_path / "old.yaml").read_text())["redis"]["password"] == "**********"


@pytest.mark.parametrize("target", ["/dev/stdout", "out.yaml"])
@pytest.mark.parametrize("command", ["show", "convert", "import"])
def test_a_file_that_is_standard_output_is_printed_to(command: str, target: str, tmp_path: Path) -> None:
    """A script that cannot say "-" says /dev/stdout; the file of its shell exists, and stays as it is."""
    scheduler = "s: {backend: a.B, queue: q, interval: 60}"
    queue = "q: {backend: spaceone.core.queue.redis_queue.RedisQueue, host: localhost, port: 6379, channel: q}"
    (tmp_path / "application.yaml").write_text(f"QUEUES: {{{queue}}}\nSCHEDULERS: {{{scheduler}}}\n")
    (tmp_path / "crontab").write_text("@daily bin/a\n")
    words = {
        "show": ("config", "show", "--write-config-to"),
        "convert": ("config", "convert", "application.yaml", "-o"),
        "import": ("import", "crontab", "crontab", "--timezone", "UTC", "--output"),
    }[command]
    out = tmp_path / "out.yaml"
    out.touch()
    out.chmod(0o644)

    with out.open("a") as stdout:
        stdout.write("# of the shell\n")
        stdout.flush()
        done = piped(tmp_path, *words, target, stdin=subprocess.DEVNULL, stdout=stdout)

    assert done.returncode == 0, done.stderr
    assert out.read_text().startswith("# of the shell\n")
    assert yaml.safe_load(out.read_text())
    assert out.stat().st_mode & 0o777 == 0o644


def test_a_crontab_that_is_standard_input_is_not_replaced(tmp_path: Path) -> None:
    """As one that is named is not: its comments would be lost."""
    crontab = tmp_path / "crontab"
    crontab.write_text(text := "# mine\n@daily bin/a\n")
    with crontab.open() as stdin:
        done = piped(
            tmp_path, "import", "crontab", "-", "--timezone", "UTC", "--output", "crontab", "--force", stdin=stdin
        )
    assert done.returncode == 73
    assert "error: crontab is one of the files that are read" in done.stderr
    assert crontab.read_text() == text


def test_a_file_without_a_name_is_refused_and_starts_nothing(tenure: Tenure, tmp_path: Path) -> None:
    """A variable of a script that is empty must not turn "write and exit" into a running tree."""
    done = tenure("run", "--write-config-to", "", TENURE_REDIS__URL="redis://127.0.0.1:1/0")

    assert (done.returncode, done.stdout) == (73, "")
    assert done.stderr.startswith("tenure: cannot write the configuration to a file without a name; name one")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.share(3)
@pytest.mark.parametrize("words", [("version",), ("config", "flags"), ("config", "default")])
def test_output_that_cannot_be_written_is_one_clear_line(words: tuple[str, ...]) -> None:
    """A full disk is no defect of the command: no traceback, and an exit code that a script sees."""
    told = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -m supervisor {" ".join(words)} >/dev/full', sys.executable],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert told.returncode == 1
    assert told.stderr.splitlines()[-1] == "tenure: cannot write its output: No space left on device"
    assert "Traceback" not in told.stderr


@pytest.mark.long
def test_output_that_the_terminal_cannot_show_is_replaced(tenure: Tenure) -> None:
    """Meanings have dashes and dots that a terminal of the last century has not."""
    told = tenure("config", "flags", "election", PYTHONIOENCODING="ascii")

    assert told.returncode == 0, told.stderr
    assert "--election-lease-duration" in told.stdout


def test_a_table_for_nobody_is_no_error() -> None:
    """A service manager that starts commands with their standard output closed."""
    told = subprocess.run(
        ["/bin/sh", "-c", '"$0" -m supervisor config flags >&-', sys.executable],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (told.returncode, "Traceback" in told.stderr) == (0, False)


def test_the_default_file_and_the_schema_are_printed(tenure: Tenure) -> None:
    """Both work without any configuration."""
    assert tenure("config", "default").stdout == (ROOT / "config/tenure.yaml").read_text(encoding="utf-8")
    schema = json.loads(tenure("config", "schema").stdout)
    assert schema["properties"]["redis"]
    assert schema["$schema"].startswith("https://json-schema.org/")


def test_the_demo_that_make_run_starts_is_valid_with_its_jobs(tenure: Tenure) -> None:
    """Every schedule of it names a job that ships, with arguments that fit."""
    result = tenure("config", "validate", "config/demo", cwd=ROOT)
    assert (result.returncode, result.stderr) == (0, "")
    assert "7 schedules" in result.stdout


def test_schedules_that_code_declares_are_shown_and_counted(tenure: Tenure, tmp_path: Path) -> None:
    """With file and line; what a module prints is no configuration, and one that cannot be imported is told."""
    code = "from tenure import job, schedule\nprint('imported')\n@schedule(every='5m')\n@job('own.f')\ndef f() -> None: ...\n"
    (tmp_path / "own.py").write_text(code)
    (tmp_path / "tenure.yaml").write_text("jobs: [own]\n")

    assert "(1 schedules, " in tenure("config", "validate").stdout
    shown = tenure("config", "show", "--sources")
    (line,) = [line for line in shown.stdout.splitlines() if "own.f" in line and ".every:" in line]
    assert line.endswith("own.py:3")
    assert "imported" not in shown.stdout

    (tmp_path / "tenure.yaml").write_text("jobs: [own, no_such_module]\n")
    shown = tenure("config", "show")
    assert (shown.returncode, "own.f" in shown.stdout) == (0, False)
    assert "schedules that code declares are left out: " in shown.stderr
