"""A proof that needs a whole machine: named steps, what was seen, and a table at the end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

STEP_S_MAX = 600.0


class NotPossibleError(Exception):
    """This machine lacks what the proof needs; the message says what, and how to get it."""


@dataclass(slots=True)
class Proof:
    """The steps so far. A step that fails does not end the proof: the others tell more."""

    title: str
    rows: list[tuple[bool, str, str]] = field(default_factory=list)

    def check(self, name: str, is_true: bool, seen: object) -> None:  # noqa: FBT001 - the outcome is the point
        """Note and print whether ``name`` held, and what was seen."""
        self.rows.append((is_true, name, str(seen)))
        print(f"{'ok    ' if is_true else 'FAILED'}  {name}: {seen}", flush=True)

    def exit_code(self) -> int:
        """Print the verdict; 0 when every step held."""
        failed = [name for is_true, name, _ in self.rows if not is_true]
        print(f"{self.title}: {len(self.rows) - len(failed)} of {len(self.rows)} hold", flush=True)
        return 1 if failed or not self.rows else 0


def need(*programs: str, packages: str) -> None:
    """Make sure that this is root and that ``programs`` exist.

    Raises:
        NotPossibleError: something is missing.
    """
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise NotPossibleError(f"needs {', '.join(missing)}; on Debian: apt-get install {packages}")
    if os.geteuid() != 0:
        raise NotPossibleError("needs root, for namespaces and file systems of other users")


def run(command: Sequence[str], *, bound_s: float = STEP_S_MAX, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run ``command`` within a bound and return what it said.

    Raises:
        RuntimeError: it failed, and ``check`` asks that it does not.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=bound_s, check=False, errors="replace")
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stderr or done.stdout)[-3000:]}")
    return done


def seconds(action: Callable[[], object]) -> float:
    """Return how long ``action`` took."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def wait_for(look: Callable[[], object], *, what: str, bound_s: float = 60.0) -> None:
    """Look again and again until ``look`` is true.

    Raises:
        TimeoutError: it was not within the bound.
    """
    until = time.monotonic() + bound_s
    while not look():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {bound_s:g} s for {what}")
        time.sleep(0.05)


def main(title: str, prove: Callable[[Proof], None]) -> int:
    """Run ``prove`` and return the exit code; 0 with the reason when this machine cannot do it."""
    proof = Proof(title)
    try:
        prove(proof)
    except NotPossibleError as error:
        print(f"{title}: skipped, it {error}", file=sys.stderr)
        return 0
    return proof.exit_code()
