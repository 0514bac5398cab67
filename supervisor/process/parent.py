"""The parent: forks, watches, stops. One thread, one blocking call, nothing that can hang.

Guarantees
    Exactly the slots of its specifications, each with at most one process. A stop ends within
    the grace plus 3.5 s. Whatever the reason it leaves for, nothing that descends from it is
    left running, and its last line has the exit code and the reason.

Does not guarantee
    That last line when it is killed itself; then the kernel ends its children (child.py).
"""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from signal import Signals

from supervisor.clock import Clock
from supervisor.core.errors import EXIT_CRASH_LOOP
from supervisor.core.supervision import shutdown
from supervisor.core.supervision.liveness import PauseGuard
from supervisor.core.supervision.scoreboard import Board
from supervisor.core.supervision.shutdown import ShutdownStage, Stop, StopEvent
from supervisor.core.supervision.states import Phase, SlotState, Verb
from supervisor.core.units import SECOND_NS
from supervisor.process import child_requests, monitor
from supervisor.process.kernel import Kernel
from supervisor.process.pool_control import PoolBook
from supervisor.process.process_table import plant
from supervisor.process.reloading import Reloading
from supervisor.process.slots import ChildIdentity, Log, ParentLimits, SlotSpec
from supervisor.process.system import signals
from supervisor.process.system.signals import Received
from supervisor.process.system.systemd import Notifier
from supervisor.telemetry import events

__all__ = ["ChildIdentity", "Parent", "ParentLimits", "SlotSpec"]

TICK_NS = SECOND_NS // 2
WAIT_MIN_NS = SECOND_NS // 1000  # if a deadline is ever left unattended, this keeps the loop from spinning
SIGNALS_PER_TURN_MAX = 32
CRASH_SWEEP_NS = SECOND_NS // 2


def _system_jitter() -> float:
    """Return a factor between 1 and 1.25, so that children that died together do not come back together."""
    return 1 + os.urandom(1)[0] / 1020


def _unbreakable(log: Log) -> Log:
    """Return a log that drops lines it cannot write: a reader that is gone must not end the tree."""

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
        limits: ParentLimits,
        notify: Notifier,
        log: Log,
        processes: Mapping[str, int] | None = None,
        reloading: Reloading | None = None,
        kernel: Kernel | None = None,
        jitter: Callable[[], float] = _system_jitter,
    ) -> None:
        """Build it; nothing is started yet.

        ``specs`` are all rows, those of pools that wait for a process included, ``processes`` how many of the rows of
        each pool are to have one. Without ``reloading`` a reload is refused. ``kernel`` and ``jitter``, a factor
        between 1 and 1.25 for pauses, are others in tests.
        """
        self._header = board.header
        self._clock = clock
        self._notify = notify
        self._log = log = _unbreakable(log)
        self._kernel = kernel or Kernel(clock)
        self._tree = plant(specs, board, kernel=self._kernel, log=log, limits=limits, jitter=jitter)
        self._book = PoolBook(self._tree, processes or {})
        self._reloading = reloading
        if reloading is not None:
            self._tree.is_known_stranger = reloading.ended
        self._guard = PauseGuard()
        self._stop = Stop(grace_ns=limits.grace_ns)
        self._quieted_ns = 0

    def run(self) -> int:
        """Run the tree until it is asked to stop, or has to."""
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
        self._tree.look_at_memory(now_ns)
        self._book.settle(now_ns)
        for live in self._tree.slots:
            live.mirror(is_wanted=live.is_up)
        self._log("tree_starting", slots=[live.spec.name for live in self._tree.slots if live.is_up])

    def _loop(self) -> None:
        now_ns = self._clock.elapsed_ns()
        while True:
            self._turn(now_ns)
            if self._stop.stage is ShutdownStage.DONE:
                return
            until_ns = self._until_ns(now_ns)
            received = self._kernel.wait(max(WAIT_MIN_NS, until_ns - self._clock.elapsed_ns()))
            now_ns = self._clock.elapsed_ns()
            if late_ns := self._guard.woke(asked_ns=until_ns, now_ns=now_ns):
                self._log("parent_was_paused", level="warning", late_s=round(late_ns / SECOND_NS, 3))
            self._take_signals(received, now_ns)

    def _turn(self, now_ns: int) -> None:
        """Bring everything up to date with ``now_ns``. Collect first: dead children need no judgement."""
        tree = self._tree
        self._header.parent_beat_ns = now_ns
        tree.collect(now_ns)
        tree.poke_agent()  # first: the runs of a worker that died wait for it
        tree.look_at_memory(now_ns)
        monitor.look(tree, self._guard, now_ns)
        for verb, asker in child_requests.read(tree, self._book, now_ns, can_reload=self._reloading is not None):
            self._obey(verb, asker, now_ns)
        if self._reloading is not None and not self._stop.is_asked:
            self._reloading.look(now_ns, tree, self._book)
        self._book.settle(now_ns)
        if tree.verdict:
            verdict = tree.verdict
            self._enter(shutdown.ask(self._fresh_stop(), now_ns=now_ns, code=verdict.code, reason=verdict.reason))
        self._advance_stop(now_ns)
        tree.start_due(now_ns)
        self._note_tree_ready(now_ns)
        tree.poke_agent()
        self._report(now_ns)

    def _until_ns(self, now_ns: int) -> int:
        found = [
            *monitor.deadlines_ns(self._tree, self._guard, now_ns),
            self._stop.deadline_ns,
            self._notify.deadline_ns,
        ]
        if self._reloading is not None and not self._stop.is_asked:
            found.append(self._reloading.deadline_ns)
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
            if not self._stop.is_asked:
                self._tree.collect(now_ns)  # who was dead by then was not lost by the stop
            is_quit = number is Signals.SIGQUIT
            reason = f"received {number.name} from pid {received.pid}"
            self._enter(shutdown.signalled(self._fresh_stop(), now_ns=now_ns, is_quit=is_quit, reason=reason))
        elif number is Signals.SIGUSR1:
            self._dump(now_ns)
            self._header.log_reopens += 1
            self._tree.poke_all()
        elif number in signals.CHANGING or number is Signals.SIGUSR2:
            problem = self._change(received, now_ns)
            fields = {"reason": problem} if problem else {}
            event, level = ("signal_ignored", "warning") if problem else ("signal_received", "info")
            self._log(event, level=level, signal=number.name, sender_pid=received.pid, **fields)

    def _dump(self, now_ns: int) -> None:
        """Write everything that the parent decides by into its log. Rows that were never used are left out."""
        used = [live for live in self._tree.slots if live.is_up or live.slot.generation]
        phase = Phase(self._header.phase).name.lower()
        self._log("state_dump", phase=phase, stage=self._stop.stage.value, slots=len(used))
        for name in self._book.names:
            self._log("state_dump_pool", level="info", **self._book.describe(name))
        for live in used:
            self._log("state_dump_slot", level="info", **live.describe(now_ns))

    def _change(self, received: Received, now_ns: int) -> str:
        """Act on a signal that changes the tree; return why not, or an empty string."""
        if received.is_from_kernel:
            return "it came from the terminal"
        if self._stop.is_asked:
            return "the tree stops"
        match received.signal:
            case Signals.SIGHUP:
                return self._reload()
            case Signals.SIGTTIN:
                return self._book.add(1)
            case Signals.SIGTTOU:
                return self._book.add(-1)
            case Signals.SIGWINCH:
                return self._toggle_quiet(now_ns)
        return "it has no meaning here"

    def _reload(self) -> str:
        if self._reloading is None:
            return "this tree cannot reload"
        self._reloading.request()
        return ""

    def _toggle_quiet(self, now_ns: int) -> str:
        """Make all workers quiet, or start them again; the same signal twice within a moment is one."""
        if not self._book.names:
            return "there is no pool"
        if now_ns - self._quieted_ns < shutdown.DEBOUNCE_NS:
            return "the same came a moment ago"
        self._quieted_ns = now_ns
        if self._book.is_quiet:
            self._book.resume_all(now_ns)
        else:
            self._book.quiet_all(now_ns)
        return ""

    def _obey(self, verb: Verb, asker: str, now_ns: int) -> None:
        if verb is Verb.STOP:
            self._enter(shutdown.ask(self._fresh_stop(), now_ns=now_ns, code=0, reason=f"asked by {asker}"))
        else:
            self._reload()

    def _fresh_stop(self) -> Stop:
        """Return the stop with the grace that is set now; one that was asked for keeps its own."""
        if self._stop.is_asked:
            return self._stop
        return replace(self._stop, grace_ns=self._tree.limits.grace_ns)

    def _advance_stop(self, now_ns: int) -> None:
        while plan := shutdown.PLANS.get(self._stop.stage):
            if not self._tree.any_process(plan.groups):
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
            if self._reloading is not None:
                self._reloading.stop()
        self._tree.stop_starting(now_ns, is_draining=stop.stage in shutdown.WORKING)
        self._tree.is_agent_due = True
        self._tree.poke_agent()
        level = "info" if stop.is_clean else "warning"
        self._log(
            "stop_stage", level=level, stage=stop.stage.value, after_s=round((now_ns - stop.asked_ns) / SECOND_NS, 3)
        )
        if plan := shutdown.PLANS.get(stop.stage):
            self._tree.order(plan.order, plan.groups, now_ns)

    def _note_tree_ready(self, now_ns: int) -> None:
        tree = self._tree
        if tree.is_ready or tree.is_stopping or not all(live.was_ready for live in tree.slots if live.is_up):
            return
        tree.is_ready = True
        self._header.phase = Phase.READY
        self._log("tree_ready", took_s=round((now_ns - self._header.started_ns) / SECOND_NS, 3))
        self._notify.ready(self._status())

    def _report(self, now_ns: int) -> None:
        events.flush()
        if self._tree.is_ready or self._stop.is_asked:
            self._notify.status(self._status())
        self._notify.tick(now_ns, is_ready=self._tree.is_ready, is_stopping=self._stop.is_asked)

    def _status(self) -> str:
        wanted = [live for live in self._tree.slots if live.is_up]
        if self._stop.is_asked:
            left = sum(live.has_process for live in self._tree.slots)
            return f"{self._stop.stage.value}: {left} of {len(wanted)} children left"
        up = sum(live.slot.state is SlotState.RUNNING for live in wanted)
        quiet = "; workers are quiet" if self._book.is_quiet else ""
        return f"{up} of {len(wanted)} children ready{quiet}"

    def _close(self) -> int:
        now_ns = self._clock.elapsed_ns()
        left = self._kernel.sweep(self._stop.sweep_until_ns(now_ns))
        code = self._stop.exit_code or (0 if self._tree.is_clean and not left else 1)
        drained = "all drained" if code == 0 else "not everything drained"
        if left:
            self._log("processes_left", level="error", count=left)
        level = "info" if code == 0 else "error"
        took_s = round((now_ns - self._stop.asked_ns) / SECOND_NS, 3)
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
