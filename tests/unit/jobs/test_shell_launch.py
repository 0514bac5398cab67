"""What a command may be, and what it inherits: decided before anything is forked."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.jobs.confinement import INHERITED
from supervisor.process.command.spec import CommandRefusedError, Launch, inherited_environment, prepare
from tests.kit.tables import table


def launch(command: list[str] | str, **options: Any) -> Launch:
    """Prepare ``command`` with the defaults of the job."""
    return prepare(**{"command": command, "shell": "/bin/sh", "env": {}, "cwd": None, "stdin": None, **options})


def test_a_list_is_executed_as_it_is() -> None:
    """No shell, so no quoting to get wrong."""
    prepared = launch(["/bin/echo", "a b", "$HOME"])

    assert prepared.argv == (b"/bin/echo", b"a b", b"$HOME")
    assert prepared.candidates == (b"/bin/echo",)


def test_a_line_is_given_to_the_shell() -> None:
    """A crontab's line means what it means in a shell."""
    assert launch("echo $HOME | wc", shell="/bin/bash").argv == (b"/bin/bash", b"-c", b"echo $HOME | wc")


def test_a_program_is_looked_for_in_the_path_that_it_will_have() -> None:
    """The job decides PATH, for the program as for what it starts; an empty entry is the working directory."""
    assert launch(["make"], env={"PATH": "/a::/b"}).candidates == (b"/a/make", b"./make", b"/b/make")


def test_without_a_path_the_system_default_is_searched() -> None:
    """execvp(3) does so too."""
    assert b"/bin/make" in launch(["make"]).candidates


def test_a_command_inherits_the_variables_that_are_listed() -> None:
    """With NOTIFY_SOCKET it would speak for the tree; what nobody listed may be a password."""
    tree = {"PATH": "/bin", "LC_ALL": "C", "NOTIFY_SOCKET": "/run/n", "TENURE_X": "1", "DB_PW": "p", "MAIL_FROM": "me"}

    assert inherited_environment(tree, INHERITED) == {"PATH": "/bin", "LC_ALL": "C"}
    assert inherited_environment(tree, ["MAIL_*"]) == {"MAIL_FROM": "me"}
    assert inherited_environment(tree, []) == {}


@table(
    ("command", "options", "message"),
    [
        ([], {}, "command is empty"),
        ([""], {}, "command is empty"),
        ("", {}, "command is empty"),
        ("  \n", {}, "command is empty"),
        (["a"] * 5000, {}, "5000 words"),
        (["echo", "a\0b"], {}, r"command\[1\] contains a NUL"),
        ("echo a\0b", {}, r"command\[2\] contains a NUL"),
        (["true"], {"cwd": "a\0b"}, "cwd contains a NUL"),
        (["true"], {"cwd": ""}, "cwd is empty"),
        ("true", {"shell": ""}, "shell is empty"),
        (["true"], {"env": {"": "x"}}, "variable called ''"),
        (["true"], {"env": {"A=B": "x"}}, "variable called 'A=B'"),
        (["true"], {"env": {"A": "x\0"}}, "env.A contains a NUL"),
        (["\ud800"], {}, "command cannot be encoded"),
        (["true"], {"stdin": "\ud800"}, "stdin cannot be encoded"),
        (["true"], {"stdin": "x" * (16 * 1024 * 1024 + 1)}, "stdin has 16777217 bytes"),
    ],
)
def test_what_cannot_be_a_command_is_refused(command: list[str] | str, options: dict[str, Any], message: str) -> None:
    """Each with the argument's name, what is wrong with it, and before a process exists."""
    with pytest.raises(CommandRefusedError, match=message):
        launch(command, **options)
