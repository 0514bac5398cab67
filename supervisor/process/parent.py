"""The parent: forks, watches, stops. One thread, one blocking call, nothing that can hang.

Guarantees
    Exactly the slots of its specifications, each with at most one process. A stop ends within
    the grace plus 3.5 s. Whatever the reason it leaves for, nothing that descends from it is
    left running, and its last line says the exit code and why.

Does not guarantee
    That last line when it is killed itself; then the kernel ends its children (child.py).
"""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Sequence
from signal import Signals

from supervisor.clock import Clock
from supervisor.core import shutdown
from supervisor.core.board import Board, Phase, SlotState
from supervisor.core.errors import EXIT_CRASH_LOOP
from supervisor.core.liveness import PauseGuard
from supervisor.core.restart import NS, Cause, describe_status
from supervisor.core.shutdown import Stage, Stop, StopEvent
from supervisor.process import signals, watch
from supervisor.process.kernel import Kernel, LinuxKernel
from supervisor.process.signals import Received
from supervisor.process.slots import Launch, Limits, LiveSlot, Log, SlotSpec
from supervisor.process.systemd import Notifier
from supervisor.process.tree import plant

__all__ = ["Launch", "Limits", "Parent", "SlotSpec"]

TICK_NS = NS // 2
WAIT_MIN_NS = NS // 1000  # if a deadline is ever left unattended, this keeps the loop from spinning
SIGNALS_PER_TURN_MAX = 32
CRASH_SWEEP_NS = NS // 2


def _system_jitter() -> float:
    """Return a factor between 1 and 1.25, so that children that died together do not come back together."""
    return 1 + os.urandom(1)[0] / 1020


def _unbreakable(log: Log) -> Log:
    """Return a log that drops what it cannot write: a reader that is gone must not end the tree."""

    def write(event: str, /, *, level: str = "info", **fields: object) -> None:
        with contextlib.suppress(OSError, ValueError):  # a broken pipe, a full disk, a closed stream
            log(event, level=level, **fields)

    return write


class Parent:
    """The root of one tree. ``run`` once; it returns the exit code."""

    def __init__(
        self,
        specs: Sequence[SlotSpec],
        board: Board,
        clock: Clock,
        *,
        limits: Limits,
        notify: Notifier,
        log: Log,
        kernel: Kernel | None = None,
        jitter: Callable[[], float] = _system_jitter,
    ) -> None:
        self._header = board.header
        self._clock = clock
        self._notify = notify
        self._log = log = _unbreakable(log)
        self._kernel = kernel or LinuxKernel(clock)
        self._tree = plant(specs, board, kernel=self._kernel, log=log, limits=limits, jitter=jitter)
        self._guard = PauseGuard()
        self._stop = Stop(grace_ns=limits.grace_ns)

    def run(self) -> int:
        """Run the tree until it is told to stop, or has to."""
        self._kernel.prepare()
        try:
            self._open()
            self._loop()
            return self._close()
        except BaseException as error:  # noqa: BLE001  # the top of the process: no child may outlive it
            return self._crash(error)

    def _open(self) -> None:
        now_ns = self._clock.elapsed_ns()
        self._header.parent_pid = os.getpid()
        self._header.started_ns = now_ns
        self._header.parent_beat_ns = now_ns
        self._header.phase = Phase.STARTING
        self._log("tree_starting", slots=[live.spec.name for live in self._tree.slots])

    def _loop(self) -> None:
        now_ns = self._clock.elapsed_ns()
        while True:
            self._turn(now_ns)
            if self._stop.stage is Stage.DONE:
                return
            until_ns = self._until_ns(now_ns)
            received = self._kernel.wait(max(WAIT_MIN_NS, until_ns - self._clock.elapsed_ns()))
            now_ns = self._clock.elapsed_ns()
            if late_ns := self._guard.woke(asked_ns=until_ns, now_ns=now_ns):
                self._log("parent_was_paused", level="warning", late_s=round(late_ns / NS, 3))
            self._take_signals(received, now_ns)

    def _turn(self, now_ns: int) -> None:
        """Bring everything up to date with ``now_ns``. Collect first: what is gone needs no judgement."""
        tree = self._tree
        self._header.parent_beat_ns = now_ns
        tree.collect(now_ns)
        watch.look(tree, self._guard, now_ns)
        if tree.verdict:
            self._enter(shutdown.ask(self._stop, now_ns=now_ns, code=tree.verdict.code, reason=tree.verdict.reason))
        self._advance_stop(now_ns)
        tree.start_due(now_ns)
        self._note_tree_ready(now_ns)
        tree.poke_agent()
        self._report(now_ns)

    def _until_ns(self, now_ns: int) -> int:
        """Return when to wake up at the latest."""
        found = [*watch.deadlines_ns(self._tree, self._guard, now_ns), self._stop.deadline_ns, self._notify.deadline_ns]
        return min([now_ns + TICK_NS, *(deadline_ns for deadline_ns in found if deadline_ns)])

    def _take_signals(self, received: Received | None, now_ns: int) -> None:
        for _ in range(SIGNALS_PER_TURN_MAX):
            if received is None:
                return
            self._on_signal(received, now_ns)
            received = self._kernel.wait(0)

    def _on_signal(self, received: Received, now_ns: int) -> None:
        number = received.signal
        if number in signals.STOPPING:
            self._log("signal_received", signal=number.name, sender_pid=received.pid, sender_uid=received.uid)
            is_quit = number is Signals.SIGQUIT
            reason = f"received {number.name} from pid {received.pid}"
            self._enter(shutdown.signalled(self._stop, now_ns=now_ns, is_quit=is_quit, reason=reason))
        elif number is Signals.SIGUSR1:
            self._dump(now_ns)
        elif number in signals.NOT_SUPPORTED_YET:
            self._log("signal_ignored", level="warning", signal=number.name, sender_pid=received.pid)

    def _advance_stop(self, now_ns: int) -> None:
        while groups := shutdown.WAITS_FOR.get(self._stop.stage):
            if not self._tree.any_process(groups):
                event = StopEvent.GONE
            elif now_ns >= self._stop.deadline_ns:
                event = StopEvent.LATE
            else:
                return
            self._enter(shutdown.advance(self._stop, event, now_ns=now_ns))

    def _enter(self, stop: Stop) -> None:
        """Take up the next stage. The board first, then the agent, then the others: the agent must know before them."""
        was, self._stop = self._stop, stop
        if stop.forced_ns:
            self._header.phase = Phase.KILLING
        if stop.stage is was.stage:
            return
        now_ns = stop.entered_ns
        if not was.is_asked and not stop.forced_ns:
            self._header.phase = Phase.DRAINING
        if not was.is_asked:
            self._header.stop_started_ns = now_ns
            self._log("tree_stopping", level="error" if stop.code else "info", reason=stop.reason)
            self._notify.stopping(f"stopping: {stop.reason}")
        self._tree.stop_starting(now_ns, is_draining=stop.stage in shutdown.WORKING)
        self._tree.is_agent_due = True
        self._tree.poke_agent()
        level = "info" if stop.is_clean else "warning"
        self._log("stop_stage", level=level, stage=stop.stage.value, after_s=round((now_ns - stop.asked_ns) / NS, 3))
        if stop.stage in shutdown.ORDERS:
            event, groups = shutdown.ORDERS[stop.stage]
            self._tree.order(event, groups, now_ns)

    def _note_tree_ready(self, now_ns: int) -> None:
        tree = self._tree
        if tree.is_ready or tree.is_stopping or not all(live.was_ready for live in tree.slots):
            return
        tree.is_ready = True
        self._header.phase = Phase.READY
        self._log("tree_ready", took_s=round((now_ns - self._header.started_ns) / NS, 3))
        self._notify.ready(self._status())

    def _report(self, now_ns: int) -> None:
        if self._tree.is_ready or self._stop.is_asked:
            self._notify.status(self._status())
        self._notify.tick(now_ns, is_ready=self._tree.is_ready, is_stopping=self._stop.is_asked)

    def _status(self) -> str:
        up = sum(live.slot.state is SlotState.RUNNING for live in self._tree.slots)
        if self._stop.is_asked:
            left = sum(live.has_process for live in self._tree.slots)
            return f"{self._stop.stage.value}: {left} of {len(self._tree.slots)} children left"
        return f"{up} of {len(self._tree.slots)} children ready"

    def _dump(self, now_ns: int) -> None:
        """Answer SIGUSR1: everything the parent decides by, one line for each slot."""
        phase = Phase(self._header.phase).name.lower()
        self._log("state_dump", phase=phase, stage=self._stop.stage.value, slots=len(self._tree.slots))
        for live in self._tree.slots:
            self._log("state_dump_slot", level="info", **_describe(live, now_ns))

    def _close(self) -> int:
        now_ns = self._clock.elapsed_ns()
        left = self._kernel.sweep(self._stop.sweep_until_ns(now_ns))
        code = self._stop.exit_code or (0 if self._tree.is_clean and not left else 1)
        drained = "all drained" if code == 0 else "not everything drained"
        if left:
            self._log("processes_left", level="error", count=left)
        level = "info" if code == 0 else "error"
        took_s = round((now_ns - self._stop.asked_ns) / NS, 3)
        reason = self._stop.reason if self._stop.code else f"{self._stop.reason}; {drained}"
        self._log("tree_stopped", level=level, code=code, reason=reason, took_s=took_s)
        return code

    def _crash(self, error: BaseException) -> int:
        self._tree.kill_all()
        self._kernel.sweep(self._clock.elapsed_ns() + CRASH_SWEEP_NS)
        self._log("parent_crashed", level="error", error=repr(error), stack=traceback.format_exc())
        reason = f"the parent itself failed: {error!r}"
        self._log("tree_stopped", level="error", code=EXIT_CRASH_LOOP, reason=reason)
        return EXIT_CRASH_LOOP


def _describe(live: LiveSlot, now_ns: int) -> dict[str, object]:
    slot, row = live.slot, live.row
    last = "" if live.last_status is None else describe_status(live.last_status)
    return {
        "slot": live.spec.name,
        "state": slot.state.name.lower(),
        "child_pid": live.pid,
        "generation": slot.generation,
        "streak": slot.streak,
        "cause": Cause(slot.cause).name.lower(),
        "last_exit": last,
        "beat_age_s": round((now_ns - row.beat_ns) / NS, 3) if row.beat_ns else None,
        "busy": row.busy,
        "done": row.done,
    }
