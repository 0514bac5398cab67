"""Parts of a command that go on when its shell has ended.

Cron lets them; Tenure ends them with the command, whose exit code says nothing of them. ``setsid`` before such a
part helps seldom: the shell ends before it has left the group (17 of 60 times it had).
"""

from __future__ import annotations

import posixpath
import re

from supervisor.importers.crontab.shell import tokens

_SHELL = re.compile(r"(?:ba|da|z|k)?sh|su|runuser|flock")
_ELSEWHERE = {"ssh", "docker", "podman", "kubectl", "lxc"}  # what their shells start is in none of our groups
_SCRIPT_FOLLOWS = re.compile(r"-[a-z]*c|--command")


def leaves_background(command: str, *, shell: str) -> bool:
    """Return whether ``command`` has a bare ``&`` without a ``wait`` behind it, also in what it gives to a shell."""
    left = [False]  # for the command and each open parenthesis
    words: list[str] = []
    for token in tokens(f"{command}\n;"):
        if not token.is_operator:
            words.append(token.text)
            continue
        if "<" in token.text or (">" in token.text and not _is_split(token.text, shell)):
            continue
        if any(leaves_background(script, shell=name) for name, script in _scripts(words)):
            return True
        if words[:1] == ["wait"]:
            left[-1] = False
        words = []
        if token.text == "&" or _is_split(token.text, shell):
            left[-1] = True
        elif token.text == "(":
            left.append(False)
        elif token.text == ")" and len(left) > 1 and left.pop():
            return True
    return any(left)


def _is_split(operator: str, shell: str) -> bool:
    """Return whether ``operator`` is ``&>``, which dash reads as ``&`` and ``>``."""
    return operator.startswith("&>") and shell == "dash"


def _scripts(words: list[str]) -> list[tuple[str, str]]:
    """Return the shells of this host in ``words``, with the commands that these are given."""
    names = [posixpath.basename(word) for word in words]
    first = next((index for index, name in enumerate(names) if _SHELL.fullmatch(name)), None)
    if first is None or names[0] in _ELSEWHERE:
        return []
    options = zip(words[first:], words[first + 1 :], strict=False)
    return [(names[first], script) for option, script in options if _SCRIPT_FOLLOWS.fullmatch(option)]
