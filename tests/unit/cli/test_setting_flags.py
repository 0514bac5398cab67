"""Which words of a command line are settings, and which are left to the command."""

from __future__ import annotations

import re

import click
import pytest

from supervisor.cli.config.setting_flags import flag_paths, flag_rows, is_switch, take_setting_flags
from supervisor.cli.help import hyphenated
from supervisor.settings.overrides import FOREIGN_FLAGS, Flag
from tests.kit.tables import table

KNOWN = {"--reason": True, "-c": True, "--all": False, "--port": True}


def taken(*words: str) -> tuple[list[str], dict[str, Flag]]:
    """Return what is left of a line, and the settings in it."""
    return take_setting_flags(list(words), KNOWN, hyphenated)


def test_a_setting_takes_its_value_with_or_without_an_equals_sign() -> None:
    """Both spellings, and both in one line; the last one counts."""
    rest, found = taken("a", "--election-lease-duration", "6s", "--web_port=1", "b", "--web-port", "2")

    assert rest == ["a", "b"]
    assert found == {
        "election.lease_duration": Flag("--election-lease-duration", "6s"),
        "web.port": Flag("--web-port", "2"),
    }


def test_a_switch_is_true_unless_it_says_otherwise() -> None:
    """As in Go: a switch takes its value with "=" only, so that it never swallows the next word."""
    rest, found = taken("--election-presence", "x", "--election-participate=false")

    assert rest == ["x"]
    assert {path: flag.value for path, flag in found.items()} == {
        "election.presence": "true",
        "election.participate": "false",
    }
    assert is_switch("election.presence")
    assert not is_switch("web.port")


def test_options_of_the_command_and_their_values_are_left_alone() -> None:
    """A reason may look like a flag; what follows ``--`` is never one."""
    line = ["--reason", "--web-port", "-c", "--log-level", "--all", "--port", "1", "--", "--web-port", "2"]

    assert taken(*line) == (line, {})


def test_a_value_that_is_missing_is_left_for_the_command_to_complain_of() -> None:
    """Click says it best."""
    assert taken("x", "--reason") == (["x", "--reason"], {})
    with pytest.raises(click.UsageError, match="requires an argument"):
        taken("--web-port")


def test_what_is_nearly_a_setting_is_refused_with_it_and_the_rest_is_left() -> None:
    """The nearest flag is the remedy; what resembles nothing is the command's own affair."""
    with pytest.raises(click.NoSuchOption) as raised:
        taken("--election-lease-duratoin", "5s")
    assert raised.value.possibilities == ["--election-lease-duration"]
    assert taken("--zzz") == (["--zzz"], {})


@table("flag", sorted(FOREIGN_FLAGS))
def test_a_flag_of_kube_scheduler_without_an_equal_is_refused_with_what_to_write(flag: str) -> None:
    """People bring command lines with them; "no such option" alone sends them to the manual."""
    with pytest.raises(click.UsageError, match=f"No such option '{flag}': .*") as raised:
        taken(f"{flag}=false")
    assert all(name in {*flag_paths(), *KNOWN} for name in re.findall(r"--[a-z-]+", FOREIGN_FLAGS[flag]))
    assert FOREIGN_FLAGS[flag] in str(raised.value)


def test_no_two_settings_share_a_flag_and_each_is_listed() -> None:
    """``a.b_c`` and ``a_b.c`` would both be --a-b-c."""
    assert len(set(flag_paths().values())) == len(flag_paths())
    assert set(flag_paths()) == {row["flag"] for row in flag_rows() if row["section"] != "deprecated"}
