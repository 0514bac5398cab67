"""The entry of the command: signals first, everything else after them.

A stop that arrives while Python still imports would end this process half started, or, as process 1 of a
container, be dropped by the kernel: there, a signal that is neither handled nor blocked does not exist.
A blocked one waits. ``tenure run`` lets it through once it can act on it (cli/replica/run.py); a parent starting this
program with signals blocked already (``env --block-signal``) closes the gap before these lines as well.
"""

import signal
import sys

AWAITED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2})
"""Signals that have a meaning for the running tree, and whose default would end its start."""


def hold_signals(words: list[str]) -> None:
    """Let signals wait until ``run`` can act on them; an inherited block holds for no other command."""
    how = signal.SIG_BLOCK if words[:1] == ["run"] else signal.SIG_UNBLOCK
    signal.pthread_sigmask(how, AWAITED)


def main() -> None:
    """Run the command line."""
    hold_signals(sys.argv[1:])
    from supervisor.cli.main import main as command  # noqa: PLC0415  # the point is that it comes after

    command()


if __name__ == "__main__":
    main()
