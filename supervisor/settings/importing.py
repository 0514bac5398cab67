"""Interface of importers: readers of other programs' files, handed to the loader by whoever composes the program.

Importers are below native files, variables and flags: their result is a layer like any other, with its origins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from supervisor.core.errors import Problem
from supervisor.settings.document import Node


@dataclass(frozen=True, slots=True)
class Converted:
    """Files of another format in native terms, and the native files among them."""

    root: Node
    native: tuple[Node, ...]
    files: tuple[Path, ...]
    problems: tuple[Problem, ...]
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conversion:
    """Result of a conversion as people see it: native settings and notices."""

    root: Node
    notices: tuple[str, ...]


class Importer(Protocol):
    """Reader of files in other formats."""

    def convert(self, files: Sequence[Path], roots: Sequence[Node | None], problems: list[Problem]) -> Converted | None:
        """Return the conversion of ``files``, or None when all are native.

        Args:
            files: those that were found.
            roots: their native reading; empty when a format is named.
            problems: takes a format that nobody knows.
        """

    def misplaced(self, document: Node) -> Problem | None:
        """Return the problem of a file of another format that is read as a native one; None of any other."""

    def finished(self, root: Node) -> Node:
        """Return the merged settings with everything that the format adds over its files."""

    def original(self, problem: Problem) -> Problem:
        """Return ``problem`` with the place as the file calls it."""

    def notices(self) -> tuple[str, ...]:
        """Return notices about variables of the format."""


MakeImporter = Callable[[str | None, Mapping[str, str], Mapping[str, object]], Importer]
"""From the format that was named, the environment and the flags to an importer."""
