"""Crontabs as cron reads them: lines, settings, percent signs, users, zones, descriptions, ids."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.importers.crontab.lines import Setting, setting, split_command
from supervisor.importers.crontab.reader import Entry, Host, Imported, Source, read_crontabs
from supervisor.settings.base import SCHEDULE_ID
from tests.kit.tables import table

CRONTABS = Path(__file__).parents[2] / "data" / "crontabs"
HOST = Host(timezone="Europe/Berlin", user="root", homes={"root": "/root", "mail": "/var/mail", "www-data": "/var/www"})


def read(text: str, *, has_user: bool = False, host: Host = HOST) -> Imported:
    return read_crontabs([Source("tab", "tab", text, has_user=has_user)], host)


def one(text: str, *, has_user: bool = False) -> Entry:
    found = read(text, has_user=has_user)
    assert not found.problems
    assert len(found.entries) == 1
    return found.entries[0]


def problems(text: str, *, has_user: bool = False) -> list[str]:
    return [str(problem) for problem in read(text, has_user=has_user).problems]


@table(
    ("text", "command", "stdin"),
    [
        ("bin/run", "bin/run", None),
        ("date +\\%F", "date +%F", None),
        ("mail a%Hello%World", "mail a", "Hello\nWorld\n"),
        ("mail a%Hello%", "mail a", "Hello\n"),
        ("cat%", "cat", ""),
        ("cat%%", "cat", "\n"),
        ("cat%100\\% sure", "cat", "100% sure\n"),
        ("cat%a\\b\\\\%c", "cat", "a\\b\\%c\n"),
        ("echo a\\tb \\", "echo a\\tb \\", None),
        ("echo \\\\%in", "echo \\\\", "in\n"),
    ],
)
def test_a_percent_sign_ends_the_command_and_begins_its_input(text: str, command: str, stdin: str | None) -> None:
    """As do_command.c of Debian's cron does it, backslashes included."""
    assert split_command(text) == (command, stdin)


@given(st.text(alphabet="a%\\ ", max_size=12))
def test_a_command_with_escaped_percent_signs_has_no_input(text: str) -> None:
    """Every percent sign that is protected comes back as itself."""
    plain = text.replace("\\", "")
    assert split_command(plain.replace("%", "\\%")) == (plain, None)


@table(
    ("line", "expected"),
    [
        ("A=b", Setting("A", "b")),
        ("  A  =  b c  ", Setting("A", "b c")),
        ('A="  b  "', Setting("A", "  b  ")),
        ("A=' b '  ", Setting("A", " b ")),
        ("\"A\"='b'", Setting("A", "b")),
        ("A=", Setting("A", "")),
        ('A=""', Setting("A", "")),
        ("A=b=c # d", Setting("A", "b=c # d")),
        ('A="b" c', None),
        ('A="b', None),
        ("* * * * * A=b cmd", None),
        ("A b=c", None),
    ],
)
def test_a_setting_is_read_by_the_rules_of_the_manual(line: str, expected: Setting | None) -> None:
    """Blanks around the sign go, blanks inside matching quotes stay."""
    assert setting(line) == expected


def test_settings_hold_for_the_entries_below_them() -> None:
    """Commands see HOME and SHELL too, and start at home; mail has a place of its own."""
    text = "A=1\n* * * * * one\nSHELL=/bin/bash\nHOME=/srv\nMAILTO=ops\nA=2\nB=3\n* * * * * two\n"
    first, second = read(text).entries
    assert (first.env, first.shell) == ({"A": "1", "HOME": "/root", "SHELL": "/bin/sh"}, "/bin/sh")
    assert (first.cwd, first.comments) == ("/root", ())
    assert second.env == {"A": "2", "B": "3", "HOME": "/srv", "SHELL": "/bin/bash"}
    assert (second.shell, second.cwd) == ("/bin/bash", "/srv")
    assert second.comments == ("MAILTO=ops",)
    assert read(text).warnings == ("tab:5: MAILTO=ops: no mail is sent; the end of the output is kept with each run",)


def test_an_empty_mailto_is_no_news() -> None:
    """It asked for no mail, and there is none."""
    assert read('MAILTO=""\n* * * * * one').warnings == ()


def test_what_cron_does_not_pass_on_is_left_out_with_a_warning() -> None:
    """LOGNAME cannot be set; a random delay would be silently lost."""
    found = read("LOGNAME=x\nRANDOM_DELAY=5\n* * * * * one")
    assert found.entries[0].env == {"HOME": "/root", "SHELL": "/bin/sh"}
    assert [warning.split(" ")[1] for warning in found.warnings] == ["LOGNAME=x", "RANDOM_DELAY=5"]


def test_cron_tz_is_the_zone_of_the_entries_below_it() -> None:
    """Above it, the host's zone."""
    entries = read("0 9 * * * a\nCRON_TZ=Asia/Tokyo\n0 9 * * * b\nCRON_TZ='UTC'\n0 9 * * * c").entries
    assert [entry.timezone for entry in entries] == ["Europe/Berlin", "Asia/Tokyo", "UTC"]


def test_an_unknown_cron_tz_is_one_problem_and_takes_its_entries_with_it() -> None:
    """Running them in another zone would be worse than not at all."""
    found = read("CRON_TZ=Mars/Olympus\n0 9 * * * a\n0 10 * * * b\nCRON_TZ=UTC\n0 9 * * * c")
    assert len(found.problems) == 1
    assert "tab:1: CRON_TZ: timezone 'Mars/Olympus'" in str(found.problems[0])
    assert [entry.command for entry in found.entries] == ["c"]


@pytest.mark.parametrize(
    "line", ["17 *\t* * *\troot\tcd / && run", "  17 * * * *  root  cd / && run", "@hourly root cd / && run"]
)
def test_an_entry_of_a_system_crontab_names_its_user(line: str) -> None:
    """Any mixture of blanks and tabs separates fields."""
    entry = one(line, has_user=True)
    assert (entry.user, entry.command) == ("root", "cd / && run")
    assert entry.description == ""


def test_an_entry_of_another_user_is_paused_with_the_reason() -> None:
    """Tenure runs commands as its own user: what www-data ran must not run as root."""
    found = read("# Count visits\n* * * * * www-data bin/count\n@daily root bin/day", has_user=True)
    other, own = found.entries
    assert [entry.description for entry in found.entries] == ["Count visits (user www-data)", ""]
    assert (other.cwd, other.env["HOME"]) == ("/var/www", "/var/www")
    why = "cron ran this as www-data, and Tenure runs commands as its own user"
    assert other.pause_reason.startswith(f"{why}: run it in a tree of www-data, or in one of root by")
    assert "sudo" not in f"{other.pause_reason} {found.warnings}"  # commands have no_new_privs, and it refuses then
    assert own.pause_reason == ""
    assert [warning.startswith(f"tab:2: {why}; it is paused: ") for warning in found.warnings] == [True]


def test_a_user_field_that_is_not_expected_is_noticed() -> None:
    """A copy of /etc/crontab elsewhere looks like a user crontab whose commands are called root."""
    warnings = read("* * * * * root a\n* * * * * mail b").warnings
    assert len(warnings) == 1
    assert "(mail, root)" in warnings[0]
    assert "--user-field yes" in warnings[0]
    assert read("* * * * * mail a\n* * * * * bin/b").warnings == ()  # mail is a command, too


@table(
    ("line", "message"),
    [
        ("@reboot root /bin/start", 'tab:1: cron "@reboot": @reboot has no time'),
        ("61 * * * * root a", 'tab:1: cron "61 * * * *": minute "61" at character 1'),
        ("0 0 31 2 * root a", "never matches"),
        (
            "0 0 * * FRI-MON root a",
            'day-of-week "FRI-MON" ends before it begins, which cron refuses; write FRI-6,0-MON',
        ),
        ("50-10/5 * * * * root a", 'minute "50-10" ends before it begins, which cron refuses; write 50-59,0-10'),
        ("* * * * * root " + "a" * 70_000, "a command of more than 65536 bytes; put it in a script"),
        (
            "* * * * * /usr/bin/a b",
            "'/usr/bin/a' is not the name of a user; if that is the command, pass --user-field no",
        ),
        ("* * * * * root", "tab:1: no command; add a user and a command"),
        ("* * * * *", "tab:1: no command; add a user and a command"),
        ("* * * * * root %in", "no command"),
        ("@daily", "no command"),
        ("-*/5 * * * * root a", "starts with -, which Debian's cron does not know"),
        ("hello", "neither a setting nor an entry: hello"),
        ("1A=b", "'1A' is not a name of a variable"),
        ("A=b\0c", "holds a NUL character"),
        ("* * * * * root a\0b", "holds a NUL character"),
        ("\x1b[2J", "neither a setting nor an entry: \\x1b[2J"),
    ],
)
def test_a_line_that_cannot_be_converted_is_one_problem_with_its_place(line: str, message: str) -> None:
    """Silence would be a job that no longer runs."""
    found = problems(line, has_user=True)
    assert len(found) == 1
    assert message in found[0]
    assert found[0].isprintable()


def test_all_problems_are_found_and_the_other_entries_stay_convertible() -> None:
    """One round of corrections, not eleven."""
    found = read((CRONTABS / "broken").read_text())
    assert [problem.where for problem in found.problems] == [
        f"tab:{line}" for line in (1, 2, 3, 4, 5, 6, 9, 10, 11, 13, 14)
    ]
    assert [entry.command for entry in found.entries] == ["bin/good"]


def test_comments_directly_above_an_entry_describe_it() -> None:
    """A blank line, a setting, a ruler or an entry that was switched off ends what they belong to."""
    text = (
        "# far away\n\n# Nightly\n#  report\n0 1 * * * a\n0 2 * * * b\n# of A\nA=1\n0 3 * * * c\n"
        "# old\n# 5 4 * * * old\n0 4 * * * d\n# rule\n# ------\n# Kept\n0 5 * * * e\n#MAILTO=x\n0 6 * * * f\n"
    )
    descriptions = {entry.command: entry.description for entry in read(text).entries}
    assert descriptions == {"a": "Nightly report", "b": "", "c": "", "d": "", "e": "Kept", "f": ""}


@pytest.mark.parametrize(
    "comment",
    ["S3_KEY=hunter2", "export PW=hunter2", "PW = hunter2 x", "@reboot root agent -phunter2", "0~5 3 * * * x -phunter2",
     "*/5 * * * * x -phunter2", "DISABLED# 0 5 * * * curl hunter2", "-0 5 * * * cmd hunter2", "old: 0 5 * * * cmd hunter2",
     "H 5 * * * cmd hunter2", "old: @daily cmd hunter2", "/usr/bin/backup hunter2", "~/bin/backup hunter2", "./x hunter2",
     "mysqldump -phunter2 db", "backup --password hunter2", "echo hunter2 | login"],
)  # fmt: skip
def test_what_was_switched_off_above_an_entry_does_not_describe_it(comment: str) -> None:
    """Everybody who may read schedules sees descriptions, and it may hold a password."""
    (entry,) = read(f"# Nightly\n#{comment}\n0 1 * * * a\n").entries
    assert entry.description == ""


@pytest.mark.parametrize(
    "comment", ["Copies 2 disks - the big ones - at 5 o'clock", "Mail to ops@example.org", "Rotate what is in /var/log"]
)
def test_prose_with_numbers_dashes_and_addresses_describes_an_entry(comment: str) -> None:
    """What it is there for."""
    (entry,) = read(f"# {comment}\n0 1 * * * a\n").entries
    assert entry.description == comment


def test_the_system_crontab_of_debian_is_read() -> None:
    """Its picture of the fields describes nothing."""
    found = read_crontabs([Source("/etc/crontab", "crontab", (CRONTABS / "system").read_text(), has_user=True)], HOST)
    assert found.problems == ()
    assert found.warnings == ()
    assert [entry.where for entry in found.entries] == [f"/etc/crontab:{line}" for line in (18, 19, 20, 21)]
    assert [entry.cron for entry in found.entries] == ["17 * * * *", "25 6 * * *", "47 6 * * 7", "52 6 1 * *"]
    assert {entry.description for entry in found.entries} == {""}
    assert {entry.id.rpartition("-")[2] for entry in found.entries} == {"hourly", "daily", "weekly", "monthly"}


def test_ids_are_unique_and_do_not_depend_on_lines() -> None:
    """An entry keeps its watermark when another is added above it, in any file."""
    before = read("0 1 * * * bin/a --x > /dev/null 2>&1\n0 2 * * * bin/a --x\n")
    after = read("# new\n0 0 * * * bin/new\n\n0 1 * * * bin/a --x > /dev/null 2>&1\n0 2 * * * bin/a --x\n")
    assert [entry.id for entry in before.entries] == ["tab.a", "tab.a-2"]
    assert [entry.id for entry in after.entries] == ["tab.new", "tab.a", "tab.a-2"]
    twice = [Source(name, "same", "@daily a", has_user=False) for name in ("x/same", "y/same")]
    assert [entry.id for entry in read_crontabs(twice, HOST).entries] == ["same.a", "same.a-2"]


@given(
    st.lists(
        st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\n\r\0%"), min_size=1, max_size=80),
        max_size=5,
    )
)
def test_every_command_has_a_valid_id(commands: list[str]) -> None:
    """Whatever it is made of: a file that is not UTF-8 is refused before it is read as a crontab."""
    found = read("".join(f"@daily x{command}\n" for command in commands))
    ids = [entry.id for entry in found.entries]
    assert len(ids) == len(set(ids)) == len(commands)
    assert all(re.match(SCHEDULE_ID, schedule) for schedule in ids)


@given(st.text(alphabet="0123456789*/,-@ABhourly=\"' \t\n\r\\%#\0é", max_size=80), st.booleans())
def test_any_text_is_read_without_an_exception(text: str, has_user: bool) -> None:  # noqa: FBT001 - drawn
    """A crontab comes from outside."""
    found = read(text, has_user=has_user)
    assert all(str(problem).startswith("tab:") for problem in found.problems)


def test_line_ends_of_windows_are_removed_with_a_warning() -> None:
    """Cron would run a command whose name ends in a carriage return."""
    found = read("A=b\r\n@daily a\r\n")
    assert (found.entries[0].command, found.entries[0].env["A"]) == ("a", "b")
    assert "line ends of Windows" in found.warnings[0]


def test_the_number_of_entries_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistaken file must not become a million schedules."""
    monkeypatch.setattr("supervisor.importers.crontab.reader.ENTRIES_MAX", 2)
    found = read("@daily a\n@daily b\n@daily c\n")
    assert len(found.entries) == 2
    assert "more than 2 entries" in str(found.problems[0])
