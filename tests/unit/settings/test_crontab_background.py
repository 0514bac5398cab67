"""Entries of crontabs that leave a part in the background: cron lets it go on, Tenure ends it with the command."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.importers.crontab.background import leaves_background
from supervisor.importers.crontab.reader import Host, Source, read_crontabs

LEFT = [
    "report &",
    "report&",
    "nohup report > /dev/null 2>&1 &",
    "(sleep 20; report) > /dev/null 2>&1 &",
    "((sleep 20; report) &)",
    "{ report & }",
    "first & second",
    "curl http://localhost/cron?key=1&all=1",
    "setsid report > /dev/null 2>&1 &",
    "cd /srv && report & echo $! > /run/report.pid",
    "PID=$(report > /dev/null & echo $!)",
    "wait; report &",
    "(report &); wait",
    "case $1 in a) report & ;; esac",
    "bash -lc 'cd /srv; nohup report &'",
    "sudo -u www sh -c 'report &' # each night",
    "flock -n /run/lock -c 'report &'; wait",
    "report >&2 &",
    "report \\\\&",
    "report 'a'&",
]
WAITED = [
    "report",
    "first && second || third",
    "report > /dev/null 2>&1",
    "report >&- <&0",
    "report |& cat",
    "first & second & wait",
    "first & wait $!",
    "for each in a b; do report $each & done; wait",
    "(first & second & wait)",
    "curl 'http://localhost/cron?key=1&all=1'",
    'echo "a & b" a\\&b',
    "report # & more",
    "echo a#b",
    "echo $((1 & 2))",
    "ssh host sh -c 'report &'",
    "python3 -c 'a & b'",
    "case $1 in a) report ;;& b) report ;& c) report;; esac",
]


@pytest.mark.parametrize("command", LEFT)
def test_a_bare_ampersand_leaves_a_part_in_the_background(command: str) -> None:
    """Behind ``setsid`` too: the shell ends before the process has left the group."""
    assert leaves_background(command, shell="dash")


@pytest.mark.parametrize("command", WAITED)
def test_other_ampersands_leave_nothing(command: str) -> None:
    """Operators of two characters, quoted ones, arithmetic, and those that a ``wait`` follows."""
    assert not leaves_background(command, shell="dash")


@pytest.mark.parametrize(
    ("setting", "is_left"), [("", True), ("SHELL=/bin/dash\n", True), ("SHELL=/bin/bash\n", False)]
)
def test_a_redirection_of_bash_is_a_background_of_dash(setting: str, is_left: bool) -> None:  # noqa: FBT001
    """Where ``/bin/sh`` is dash, ``&>`` is ``&`` and ``>``."""
    text = f"{setting}* * * * * report &> /dev/null"
    (entry,) = read_crontabs([Source("tab", "tab", text, has_user=False)], Host("UTC", "root")).entries
    assert bool(entry.pause_reason) == is_left
    (entry,) = read_crontabs([Source("tab", "tab", text, has_user=False)], Host("UTC", "root", sh="bash")).entries
    assert bool(entry.pause_reason) == (is_left and "dash" in setting)


def test_an_entry_that_leaves_a_part_in_the_background_is_paused_with_the_remedy() -> None:
    """Its runs would be ok, and do nothing; what is wrong beside it is said too."""
    text = "* * * * * root report\n* * * * * root report > /dev/null 2>&1 &\n* * * * * www report &"
    found = read_crontabs([Source("tab", "tab", text, has_user=True)], Host("UTC", "root"))
    plain, left, other = (entry.pause_reason for entry in found.entries)
    assert plain == ""
    assert left.startswith("a bare & leaves a part of this in the background")
    assert "take the & away" in left
    assert other.startswith("cron ran this as www")
    assert other.endswith(f"; {left}")
    assert [warning.partition(": ")[0] for warning in found.warnings] == ["tab:2", "tab:3", "tab:3"]
    assert "it is paused: take the & away" in found.warnings[0]


@given(st.text(alphabet="ab &|;<>()$`'\"\\#-cshwait", max_size=60))
def test_every_line_is_decided(command: str) -> None:
    """Whatever it is made of, and one in quotes leaves nothing."""
    assert leaves_background(command, shell="dash") in {True, False}
    assert not leaves_background("echo '{}'".format(command.replace("'", "")), shell="dash")
