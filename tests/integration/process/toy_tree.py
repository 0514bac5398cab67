"""A real tree with toy roles, run as a program: ``python toy_tree.py '{"slots": [["web", "web", "idle"]], …}'``.

Prints its log as JSON lines on standard output; the stacks of hung children go to standard error.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from supervisor.clock import SystemClock
from supervisor.core.errors import ConfigError, Problem
from supervisor.core.supervision.scoreboard import Board, Row
from supervisor.core.supervision.slot import Group
from supervisor.core.supervision.states import ChildState, Phase, Verb
from supervisor.core.units import SECOND_NS
from supervisor.process.parent import ChildIdentity, Parent, ParentLimits, SlotSpec
from supervisor.process.spawn import allocate
from supervisor.process.system.systemd import Notifier

sys.path.insert(0, str(Path(__file__).parent))
from fault_injections import WAYS  # beside this program

CLOCK = SystemClock()


def log(event: str, /, *, level: str = "info", **fields: object) -> None:
    line = {"event": event, "level": level, "at_s": CLOCK.elapsed_ns() / SECOND_NS, "by": os.getpid(), **fields}
    os.write(1, (json.dumps(line) + "\n").encode())


class Toy:
    """What every toy role starts from: its row, and the signals it was sent."""

    def __init__(self, board: Board, launch: ChildIdentity, directory: Path) -> None:
        self.board = board
        self.launch = launch
        self.row: Row = board.rows[launch.slot]
        self.directory = directory
        self.is_told = False
        signal.signal(signal.SIGTERM, self._told)
        signal.signal(signal.SIGURG, lambda *_: None)

    def _told(self, *_: object) -> None:
        self.is_told = True

    def ready(self) -> None:
        self.row.child_generation = self.launch.generation
        self.row.beat_ns = CLOCK.elapsed_ns()
        self.row.child_state = ChildState.READY
        os.kill(self.launch.parent_pid, signal.SIGURG)

    def idle(self) -> int:
        while not self.is_told:
            self.row.beat_ns = CLOCK.elapsed_ns()
            signal.sigtimedwait((), 0.02)
        return 0

    def ask(self, verb: int, slot: int, generation: int) -> None:
        self.row.request_verb, self.row.request_slot, self.row.request_generation = verb, slot, generation
        self.row.request_number += 1
        os.kill(self.launch.parent_pid, signal.SIGURG)


def idle(toy: Toy) -> int:
    toy.ready()
    return toy.idle()


def crash(toy: Toy) -> int:
    toy.ready()
    raise RuntimeError("the role failed on purpose")


def crash_once(toy: Toy) -> int:
    toy.ready()
    if toy.launch.generation == 1:
        raise RuntimeError("the role failed on purpose, with password=hunter2 \x1b[2J")
    return toy.idle()


def flap(toy: Toy) -> int:
    """Fails two hundred times once the tree is ready, then is good."""
    toy.ready()
    while toy.board.header.phase < Phase.READY:  # it may stop at once
        signal.sigtimedwait((), 0.01)
    return 1 if toy.launch.generation <= 200 else toy.idle()


def refuse(toy: Toy) -> int:
    raise ConfigError([Problem("toy.yaml:1", "toy", "is wrong", "make it right")])


def leave(toy: Toy) -> int:
    toy.ready()
    return 0


def never_ready(toy: Toy) -> int:
    return toy.idle()


def a_function_that_hangs() -> None:
    while True:
        pass


def hang_once(toy: Toy) -> int:
    toy.ready()
    if toy.launch.generation == 1:
        a_function_that_hangs()
    return toy.idle()


def overrun_once(toy: Toy) -> int:
    toy.ready()
    if toy.launch.generation == 1:
        toy.row.deadline_ns = CLOCK.elapsed_ns() + SECOND_NS // 5
        os.kill(toy.launch.parent_pid, signal.SIGURG)
        a_function_that_hangs()
    return toy.idle()


def busy(toy: Toy) -> int:
    """Says nothing for eight seconds, as a job may that still has time; asleep, so that nothing else excuses it."""
    toy.row.deadline_ns = CLOCK.elapsed_ns() + 60 * SECOND_NS
    toy.ready()
    until_ns = CLOCK.elapsed_ns() + 8 * SECOND_NS
    while CLOCK.elapsed_ns() < until_ns:
        signal.sigtimedwait((), 0.02)
    log("toy_was_busy")
    toy.row.beat_ns = CLOCK.elapsed_ns()  # before the deadline goes, or the silence behind it would count
    toy.row.deadline_ns = 0
    return toy.idle()


def deaf(toy: Toy) -> int:
    """Ignores every polite signal."""
    for number in (signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    toy.ready()
    while True:
        toy.row.beat_ns = CLOCK.elapsed_ns()
        signal.sigtimedwait((), 0.02)


def slow(toy: Toy) -> int:
    """Takes a second to drain."""
    toy.ready()
    toy.idle()
    until_ns = CLOCK.elapsed_ns() + SECOND_NS
    while CLOCK.elapsed_ns() < until_ns:
        signal.sigtimedwait((), 0.02)
    return 0


def grandchildren(toy: Toy) -> int:
    """Starts one process in its own group, one in another group, one in another session."""
    for options in ({}, {"process_group": 0}, {"start_new_session": True}):
        grandchild = subprocess.Popen(["sleep", "600"], **options)  # type: ignore[call-overload]
        log("grandchild", pid=grandchild.pid, kind=next(iter(options), "same group"))
    toy.ready()
    return toy.idle()


def orphans(toy: Toy) -> int:
    """Makes processes whose parent dies at once."""
    for _ in range(5):
        subprocess.run(["sh", "-c", "sh -c 'exit 3' & exit 0"], check=True)
    toy.ready()
    return toy.idle()


def guest(toy: Toy) -> int:
    """Shows what a child finds when its role starts."""
    blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    status = subprocess.run(["/bin/cat", "/proc/self/status"], check=True, capture_output=True, text=True).stdout
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGTTIN, signal.SIGTTOU):
        for _ in range(2):
            os.kill(os.getpid(), number)
    descriptors = {int(p.name): str(p.readlink()) for p in list(Path("/proc/self/fd").iterdir()) if p.exists()}
    log(
        "guest",
        pid=os.getpid(),
        group=os.getpgid(0),
        blocked=blocked,
        ignored_by_programs=next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn")),
        sigchld=str(signal.getsignal(signal.SIGCHLD)),
        descriptors=descriptors,
        name=Path("/proc/self/comm").read_text().strip(),
        oom=int(Path("/proc/self/oom_score_adj").read_text()),
        drawn=[each.random() for each in (random, sys.modules.get("numpy.random")) if each is not None],
        environment=[name for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID") if name in os.environ],
    )
    return idle(toy)


def recycled(toy: Toy) -> int:
    """The first process of the first row asks to be replaced, and works until it is told to go."""
    toy.ready()
    while toy.board.header.phase < Phase.READY:  # it may stop at once
        signal.sigtimedwait((), 0.01)
    if toy.launch.slot == 0 and toy.launch.generation == 1:
        toy.ask(Verb.RECYCLE, 0, 1)
    return toy.idle()


def hangs_in_spare_row(toy: Toy) -> int:
    """Comes up in the first row only."""
    return recycled(toy) if toy.launch.slot == 0 else toy.idle()


def asks_to_kill(toy: Toy) -> int:
    """An agent that has worker slot 1 killed, then restarted, then asks for nonsense."""
    toy.ready()
    victim = toy.board.rows[1]
    while victim.child_state != ChildState.READY or victim.child_generation != 1:
        signal.sigtimedwait((), 0.01)
    toy.ask(99, 1, 1)
    _wait_handled(toy)
    toy.ask(Verb.KILL, 1, 7)
    _wait_handled(toy)
    toy.ask(Verb.KILL, 1, 1)
    while victim.child_state != ChildState.READY or victim.child_generation != 2:
        signal.sigtimedwait((), 0.01)
    toy.ask(Verb.RESTART, 1, 2)
    return toy.idle()


def _wait_handled(toy: Toy) -> None:
    while toy.row.handled_number != toy.row.request_number:
        signal.sigtimedwait((), 0.01)


def server(directory: Path) -> int:
    """Becomes another program, in a session of its own, as the embedded server does.

    It sets no handler before: a SIGTERM that Python has noted but not yet shown would be lost by exec.
    """
    os.setsid()
    mark = directory / "server"
    program = (
        "import os,signal,sys,time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (open({str(mark.with_suffix('.stopped'))!r},'w').write(str(time.clock_gettime_ns(7))), os._exit(0)))\n"
        f"print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), file=open({str(mark)!r}, 'w'), flush=True)\n"
        "while True: time.sleep(0.05)\n"  # a signal that comes just before pause() waits for the next one
    )
    os.execv(sys.executable, [sys.executable, "-c", program])


ROLES = {f.__name__: f for f in (
    idle, crash, crash_once, flap, refuse, leave, never_ready, hang_once, overrun_once, busy, deaf, slow, grandchildren,
    orphans, guest, asks_to_kill, recycled, hangs_in_spare_row,
)}  # fmt: skip


def spec(board: Board, directory: Path, name: str, group: str, role: str, *options: dict[str, Any]) -> SlotSpec:
    def run(launch: ChildIdentity) -> int:
        return server(directory) if role == "server" else ROLES[role](Toy(board, launch, directory))

    is_ready = (directory / "server").exists if group == Group.EMBEDDED else None
    return SlotSpec(name=name, run=run, group=Group(group), is_ready=is_ready, **dict(*options))


def main(plan: dict[str, Any]) -> int:
    directory = Path(plan["directory"])
    board = allocate(slots=len(plan["slots"]) + 2, inflight=4)
    for way in plan.get("ways", ()):
        WAYS[way](directory)
    parent = Parent(
        [spec(board, directory, *slot) for slot in plan["slots"]],
        board,
        CLOCK,
        limits=ParentLimits(**plan.get("limits", {})),
        notify=Notifier.from_environment(os.environ, pid=os.getpid()),
        log=log,
        processes=plan.get("processes"),
    )
    return parent.run()


if __name__ == "__main__":
    os._exit(main(json.loads(sys.argv[1])))
