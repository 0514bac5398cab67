"""Output of runs: what their attempts printed and logged."""

from __future__ import annotations

from collections.abc import Callable

from supervisor.operations import Delay, Operation
from supervisor.operations.runs import checked_runs, show
from supervisor.store.keys import Keys
from supervisor.store.queues.reads import QueueReads
from supervisor.store.queues.run_records import AttemptLog as AttemptLog  # noqa: PLC0414 - of answers
from supervisor.store.queues.run_records import RunLogs

EVERY_S = 1.0
_ENDS = frozenset({"finished", "dead", "unknown"})


def read(keys: Keys, run_id: str, *, attempt: int | None = None) -> Operation[list[AttemptLog]]:
    """Read the output that is kept of a run, or of one attempt, the oldest execution first.

    Raises:
        InvalidRunError: no run can have the id.
        UnknownRunError: nothing is known about the run.
    """
    checked_runs([("", run_id)])
    logs: list[AttemptLog] = yield RunLogs(keys).read(run_id)
    if not logs:
        yield from show(keys, run_id)
    return _of(logs, attempt)


def _of(logs: list[AttemptLog], attempt: int | None) -> list[AttemptLog]:
    return [log for log in logs if attempt is None or log.attempt == attempt]


def follow(
    keys: Keys, run_id: str, tell: Callable[[AttemptLog, str], object], *, attempt: int | None = None
) -> Operation[None]:
    """Tell the output of a run as it grows, until the run has ended; see ``read``.

    Args:
        keys: of the cluster.
        run_id: the run.
        tell: called with an output and the text that is new in it.
        attempt: only this one.
    """
    yield from read(keys, run_id)
    told: dict[int, int] = {}
    is_over = False
    while not is_over:
        view = yield QueueReads(keys).show(run_id, need="end")
        is_over = view is None or view.state in _ENDS  # asked before its output, which then is the last
        for log in _of((yield RunLogs(keys).read(run_id)), attempt):
            text, told[log.number] = text_after(log, told.get(log.number, 0))
            if text:
                tell(log, text)
        if not is_over:
            yield Delay(EVERY_S)


def text_after(log: AttemptLog, lines: int = 0) -> tuple[str, int]:
    """Return what follows the first ``lines`` lines of an output, and how many lines it has by now.

    A line may lie across the cut: ``head`` then ends and ``tail`` begins inside it. An output that has ended counts one
    line more, since nothing follows a last line without its end.
    """
    head, tail = log.head.splitlines(keepends=True), log.tail.splitlines(keepends=True)
    shown = head[lines:]
    first = log.head.count("\n") + log.cut_lines  # the line that the tail begins in
    if log.cut_chars:
        if lines < first or (lines == first and (tail or not log.is_open)):
            end_of_line = "\n" if shown and not shown[-1].endswith("\n") else ""
            missing = first - max(lines, log.head.count("\n"))
            shown.append(f"{end_of_line}… {missing} lines cut ({log.cut_chars} characters in all) …\n")
        tail = tail[max(0, lines - first) :]
    total = first + log.tail.count("\n") + (not log.is_open)
    return "".join(shown + tail), max(lines, total)
