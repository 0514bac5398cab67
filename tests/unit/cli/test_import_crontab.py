"""``tenure import crontab``: files, folders, standard input, exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from supervisor.cli.config import import_
from supervisor.cli.config.import_ import import_group
from supervisor.importers.crontab import host_zone

CRONTABS = Path(__file__).parents[2] / "data" / "crontabs"
UTC = ("--timezone", "UTC")


def run(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(import_group, ["crontab", *map(str, arguments)], input=stdin)


def test_a_crontab_becomes_a_configuration_on_standard_output() -> None:
    """Warnings go to standard error, so that the output can be piped."""
    result = run(CRONTABS / "user", *UTC)
    assert result.exit_code == 0
    schedules = yaml.safe_load(result.stdout)["schedules"]
    assert schedules["user.report"]["timezone"] == "UTC"
    assert "MAILTO" in result.stderr


def test_of_a_folder_the_files_are_read_that_cron_reads() -> None:
    """Names with a dot are ignored with a note; files in cron.d name users."""
    result = run(CRONTABS / "cron.d", *UTC)
    assert result.exit_code == 0
    assert list(yaml.safe_load(result.stdout)["schedules"]) == [
        "stats.stats",
        "stats.touch",
    ]
    assert "stats.dpkg-old: not read, because cron ignores files with such a name" in result.stderr


@pytest.mark.parametrize(
    ("place", "option", "command"),
    [("etc/crontab", "auto", "a b"), ("cron.d/x", "auto", "a b"), ("crontab", "auto", "root a b"), ("tab.txt", "auto", "root a b"),
     ("etc/crontab", "no", "root a b"), ("tab.txt", "yes", "a b")],
)  # fmt: skip
def test_the_place_of_a_file_decides_whether_it_names_users(
    place: str, option: str, command: str, tmp_path: Path
) -> None:
    """And --user-field decides otherwise."""
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text("@daily root a b\n")
    result = run(file, "--user-field", option, *UTC)
    (schedule,) = yaml.safe_load(result.stdout)["schedules"].values()
    assert schedule["args"]["command"] == command


@pytest.mark.parametrize("is_near", [True, False])
@pytest.mark.parametrize("named", ["", "mail", "sub/../mail"])
def test_a_crontab_in_cron_s_spool_is_of_the_user_it_is_called_after(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_near: bool
) -> None:
    """Root may read them all; what a user may edit does not run as the user of the tree."""
    monkeypatch.setattr(import_, "_SPOOLS", (tmp_path,))
    for user in ("mail", "games", "ann.lee", ".lock"):
        (tmp_path / user).write_text("@daily bin/work\n")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)

    result = run(named or "." if is_near else f"{tmp_path}/{named}", "--user", "games", *UTC)

    schedules = yaml.safe_load(result.stdout)["schedules"]
    assert schedules["mail.work"]["paused"] is True
    assert schedules["mail.work"]["pause_reason"].startswith("cron ran this as mail")
    assert named or "paused" not in schedules["games.work"]
    assert len(schedules) == (1 if named else 3)


@pytest.mark.parametrize(("count", "is_warned"), [(16, False), (17, True)])
def test_more_lines_than_run_at_once_are_warned_of(count: int, *, is_warned: bool) -> None:
    """Cron knows no such limit."""
    result = run("-", *UTC, stdin=b"* * * * * /opt/job\n" * count)
    assert result.exit_code == 0
    assert ("warning: at most 16 commands run at once" in result.stderr) is is_warned


@pytest.mark.parametrize("name", ["conf.d/tabs.yaml", "tabs.yaml"])
def test_settings_of_other_files_that_the_written_one_meets_are_named(name: str, tmp_path: Path) -> None:
    """In one directory the file that is read last wins: pools and umask of the others were gone without a word."""
    output = tmp_path / name
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "base.yaml").write_text('jobs: [shell]\nshell: {umask: "027"}\nworkers: {io: {kind: async}}\n')
    (tmp_path / "conf.d" / "more.yaml").write_text("jobs: [reports]\nweb: {port: 1}\n")
    (tmp_path / "broken.yaml").write_text("shell: [")

    result = run("-", *UTC, "--output", output, stdin=b"@daily bin/a\n")

    assert result.exit_code == 0
    warned = [line.split(" too, ")[0] for line in result.stderr.splitlines() if line.startswith("warning: ")]
    assert sorted(warned) == [
        f"warning: {tmp_path}/base.yaml sets shell.umask",
        f"warning: {tmp_path}/base.yaml sets workers",
        f"warning: {tmp_path}/conf.d/more.yaml sets jobs",
    ]


def test_standard_input_is_a_user_crontab() -> None:
    """``crontab -l`` prints one."""
    result = run("-", *UTC, stdin=b"@daily bin/a\n")
    assert list(yaml.safe_load(result.stdout)["schedules"]) == ["crontab.a"]


def test_with_a_problem_nothing_is_written(tmp_path: Path) -> None:
    """Half a crontab in production is worse than none; all problems come at once."""
    output = tmp_path / "tenure.yaml"
    result = run(CRONTABS / "broken", tmp_path / "absent", tmp_path / ("x" * 300), "--output", output, *UTC)
    assert result.exit_code == 78
    assert not output.exists()
    assert result.stdout == ""
    assert result.stderr.count("error: ") == 13
    assert "cannot be read: File name too long" in result.stderr
    assert "absent: cannot be read: No such file or directory" in result.stderr
    assert "@reboot has no time" in result.stderr
    assert "--skip-invalid converts the other entries: 1" in result.stderr


def test_what_is_invalid_can_be_left_out(tmp_path: Path) -> None:
    """Each of them is still named."""
    output = tmp_path / "tenure.yaml"
    result = run(CRONTABS / "broken", "--skip-invalid", "--output", output, *UTC)
    assert result.exit_code == 0
    assert list(yaml.safe_load(output.read_text())["schedules"]) == ["broken.good"]
    assert result.stderr.count("left out: ") == 11


def test_when_nothing_is_left_nothing_is_written(tmp_path: Path) -> None:
    """An empty configuration would look like success."""
    tab = tmp_path / "tab"
    tab.write_text("@reboot a\n")
    result = run(tab, "--skip-invalid", *UTC)
    assert result.exit_code == 78
    assert result.stdout == ""
    assert "no entry can be converted" in result.stderr


def test_an_empty_crontab_is_no_mistake(tmp_path: Path) -> None:
    """It holds no schedules, and says so."""
    tab = tmp_path / "tab"
    tab.write_text("# nothing yet\n")
    result = run(tab, *UTC)
    assert result.exit_code == 0
    assert yaml.safe_load(result.stdout)["schedules"] == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"@daily a\n@daily \xff\n", ":2: byte 0xff is not UTF-8"),
        (b"#" * (1024 * 1024 + 1), "larger than 1048576 bytes"),
    ],
)
def test_a_file_that_is_no_crontab_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    """Binaries and logs end here."""
    tab = tmp_path / "tab"
    tab.write_bytes(content)
    result = run(tab, *UTC)
    assert result.exit_code == 78
    assert message in result.stderr


def test_an_unknown_zone_is_a_problem_like_the_others() -> None:
    """With its remedy, beside those of the files."""
    result = run(CRONTABS / "broken", "--timezone", "Europe/Berln")
    assert result.exit_code == 78
    assert (
        "--timezone: timezone 'Europe/Berln' is not in the time zone database; did you mean Europe/Berlin?"
        in result.stderr
    )
    assert "broken:2" in result.stderr


def test_the_zone_of_the_host_is_the_default_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks for it in each entry; one that is not known is asked for, before anything is written."""
    files = host_zone.HostFiles(etc=tmp_path, databases=(tmp_path,), mounts=tmp_path / "mounts")
    monkeypatch.setattr(host_zone, "HostFiles", lambda: files)
    monkeypatch.setenv("TZ", ":Asia/Tokyo")
    result = run("-", stdin=b"@daily a\n")
    assert yaml.safe_load(result.stdout)["schedules"]["crontab.a"]["timezone"] == "Asia/Tokyo"
    assert "note: zone of entries without CRON_TZ: Asia/Tokyo (from TZ=:Asia/Tokyo)" in result.stderr
    assert "UTC (from --timezone)" in run("-", *UTC, stdin=b"@daily a\n").stderr

    monkeypatch.delenv("TZ")
    (tmp_path / "localtime").write_bytes(b"TZif of nobody")
    result = run("-", stdin=b"@daily a\n")
    assert (result.exit_code, result.stdout) == (78, "")
    assert "the zone of this host is not known; name the zone that cron runs in: --timezone ZONE" in result.stderr


def test_the_help_shows_an_example() -> None:
    """Somebody with a crontab at hand wants one line to copy."""
    result = run("--help")
    assert "tenure import crontab /etc/crontab /etc/cron.d --output tenure.yaml" in result.output


def test_braces_and_references_in_a_command_are_its_own() -> None:
    """`docker ps --format` has two braces, and cron fills nothing in."""
    done = run("-", stdin="0 3 * * * docker ps --format '{{.Names}} {{ date }} ${file:x}'\n")

    assert done.exit_code == 0
    assert r"--format '\{{.Names}} \{{ date }} $${file:x}'" in done.stdout
