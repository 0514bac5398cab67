"""Takes the secrets of a plugin out of texts that people will read.

Guarantees
    A secret is found as it is, as JSON writes it once or twice, as Python shows it, and each of its lines alone:
    programs quote a request that they cannot read, and keys have several lines.

Does not guarantee
    Anything of a secret, or a line of one, that is shorter than these limits, or that is in another encoding.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from supervisor.telemetry.masking import MASK, mask_text

SECRET_CHARS_MIN = 4  # a shorter one would blank out half of any text
LINE_CHARS_MIN = 8  # of one line of several, which may be a word that means nothing


class Masker:
    """Masking of secrets; called with a text, it returns that without them."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        found = {form for secret in secrets for part in _parts(secret) for form in _forms(part)}
        self._hidden = sorted(found, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return ``text`` without secrets."""
        for each in self._hidden:
            text = text.replace(each, MASK)
        return mask_text(text)

    def finds_in(self, text: str) -> bool:
        """Return whether ``text`` holds a secret."""
        return any(each in text for each in self._hidden)

    def end_of(self, text: str) -> str:
        """Return the rest of a text whose beginning was cut off: a secret that was cut in two goes with it."""
        return self(text)[len(self._hidden[0]) if self._hidden else 0 :]


def _parts(secret: str) -> Iterator[str]:
    if len(secret) >= SECRET_CHARS_MIN:
        yield secret
    lines = secret.splitlines()
    if len(lines) > 1:
        yield from (line for line in map(str.strip, lines) if len(line) >= LINE_CHARS_MIN)


def _forms(text: str) -> Iterator[str]:
    yield text
    yield repr(text)[1:-1]
    for is_ascii in (False, True):
        once = json.dumps(text, ensure_ascii=is_ascii)[1:-1]
        yield once
        yield json.dumps(once, ensure_ascii=is_ascii)[1:-1]
