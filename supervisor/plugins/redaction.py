"""Takes the secrets of a plugin out of texts that people will read.

Guarantees
    A secret is found as it is, without white space around it, as JSON writes it once or twice, as Python shows it, and
    each of its lines alone: programs quote a request that they cannot read, and keys have several lines.
    Settings that are shown to nobody are masked like secrets, however the plugin is given them: the environment, words
    of the command, options from references or under the name of a secret. A task is refused for those alone that are
    certain to be secrets.

Does not guarantee
    Anything of a secret, or a line of one, that is shorter than these limits, or that is in another encoding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from supervisor.settings.base import Path as SettingPath
from supervisor.settings.masking import REFERENCE
from supervisor.settings.sections.plugins import PluginSettings
from supervisor.telemetry.masking import MASK, is_secret_name, mask_text

SECRET_CHARS_MIN = 4  # a shorter one would blank out half of any text
SWITCHES = {"true", "false", "null", "none", "auto"}
"""What is no secret under any name, such as ``ENABLE_AUTH: "true"``: each JSON text holds one."""

WORD_CHARS_MIN = 8  # of one line of several, or of a setting that need be no secret: it may be an ordinary word


class Masker:
    """Masking of secrets; called with a text, it returns that without them.

    Args:
        secrets: what no text may show, and no task hold.
        others: what no text may show, unless it is a word of letters alone or shorter than eight characters; a task may
            hold it, such as a region that the program has from its environment.
    """

    def __init__(self, secrets: Iterable[str] = (), others: Iterable[str] = ()) -> None:
        self._secrets = {form for text in secrets for part in _parts(text) for form in _forms(part)}
        likely = (text for text in others if not text.strip().isalpha())
        found = {form for text in likely for part in _parts(text, WORD_CHARS_MIN) for form in _forms(part)}
        self._hidden = sorted(self._secrets | found, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return ``text`` without secrets."""
        for each in self._hidden:
            text = text.replace(each, MASK)
        return mask_text(text)

    def finds_in(self, text: str) -> bool:
        """Return whether ``text`` holds a secret."""
        return any(each in text for each in self._secrets)

    def end_of(self, text: str) -> str:
        """Return the rest of a text whose beginning was cut off: a secret that was cut in two goes with it."""
        return self(text)[len(self._hidden[0]) if self._hidden else 0 :]


def mask_of(settings: PluginSettings, references: Mapping[SettingPath, str]) -> Masker:
    """Return the masking of what the configuration gives a plugin and shows to nobody."""
    secrets: list[str] = []
    others: list[str] = []
    for path, name, text in _unshown(settings, references):
        read = list(_read(references.get(path, ""), text))
        is_named = is_secret_name(name) and (path[0] != "options" or path in references)  # auth: basic, secret: db-main
        is_secret = path[0] == "secrets" or is_named or any(is_sure for is_sure, _ in read)
        for is_sure, part in ((is_secret, text), *read):
            (secrets if is_sure else others).append(part)
    return Masker(secrets, others)


def _unshown(settings: PluginSettings, references: Mapping[SettingPath, str]) -> Iterator[tuple[SettingPath, str, str]]:
    """Yield the path, the name and the text of each setting of a plugin that is shown to nobody."""
    for section, values in (("secrets", settings.secrets), ("env", settings.env)):
        for name, held in values.items():
            yield (section, name), name, held.get_secret_value()
    for index, (before, word) in enumerate(pairwise(settings.command), start=1):
        if ("command", index) in references or not _is_ordinary(word, settings.cwd):
            flag, _, value = word.partition("=") if word.startswith("-") else (before, "", word)
            yield ("command", index), flag if flag.startswith("-") else "", value or word[2:]  # -pVALUE
    for path, name, text in _texts(settings.options, ("options",), ""):
        if path in references or is_secret_name(name):
            yield path, name, text


def _is_ordinary(word: str, cwd: str | None) -> bool:
    """Return whether a word of a command is a long option without value, or a file: tracebacks name that."""
    if word.startswith("--"):
        return "=" not in word
    with suppress(OSError, ValueError):
        return Path(cwd or ".", word).exists()
    return False


def _texts(value: Any, path: SettingPath, name: str) -> Iterator[tuple[SettingPath, str, str]]:
    """Yield the path, the name and the text of each text in ``value``; items of a list have the name of the list."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, (*path, key), str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index), name)
    elif isinstance(value, str):
        yield path, name, value


def _read(written: str, text: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of ``text`` that were read for the references in ``written``, after whether it is a secret."""
    found = list(REFERENCE.finditer(written))
    between = REFERENCE.sub("\0", written).replace("$${", "${").split("\0")
    for value in ("(.*?)", "(.*)"):  # what stands between two of them may occur in the values of both
        if parts := re.fullmatch(value.join(map(re.escape, between)), text, re.DOTALL):
            for reference, part in zip(found, parts.groups(), strict=True):
                yield reference[1] == "file" or is_secret_name(reference[2]), part


def _parts(secret: str, least: int = SECRET_CHARS_MIN) -> Iterator[str]:
    for text in {secret, secret.strip()}:  # programs take away the line end that a file or variable has
        if len(text) >= least and text.lower() not in SWITCHES:
            yield text
    lines = secret.splitlines()
    if len(lines) > 1:
        yield from (line for line in map(str.strip, lines) if len(line) >= WORD_CHARS_MIN)


def _forms(text: str) -> Iterator[str]:
    yield text
    yield repr(text)[1:-1]
    for is_ascii in (False, True):
        once = json.dumps(text, ensure_ascii=is_ascii)[1:-1]
        yield once
        yield json.dumps(once, ensure_ascii=is_ascii)[1:-1]
