"""The execution of one task message: its stages, in their order, with a record of each.

Guarantees
    A stage that is done is not done again by a later attempt of the same run, unless it put tasks into queues: those
    come into being when the run ends well, and then once.
    With ``stop_on_failure`` (the default) the first stage that fails is the last that is tried; without it all are.
    Either way a failed stage makes the run a failed one, whose error names the stage.
    Callbacks that a failed stage gave to ``add_rollback`` are called, the last first, before the next stage begins.
    No record, error or line of the log shows the metadata or a secret of the task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from supervisor.compat.cloudforet.locator import Locator, LocatorError, class_of
from supervisor.compat.cloudforet.tasks import runtime
from supervisor.compat.cloudforet.tasks.redaction import CONTROL, Hidden, without_secrets
from supervisor.compat.cloudforet.transaction import Transaction, entered
from supervisor.core.errors import TenureError
from supervisor.core.json_values import read_json
from supervisor.core.units import SECOND_NS
from supervisor.roles.worker.attempt.context import Context
from supervisor.roles.worker.attempt.failure import is_clean_exit

RESULT_BYTES_MAX = 2048
RESULTS_BYTES_MAX = 48 * 1024
ERROR_CHARS_MAX = 500
NOTE_CHARS_MAX = 100
_UNFIT = re.compile(r"[^A-Za-z0-9_.:/-]")
_STEP_CHARS_MAX = 80


class StageRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Record of one stage: its status, duration, and result or error."""

    stage: str
    status: str  # done, failed, skipped
    duration_s: float = 0.0
    result: Any = None
    error: str = ""


class StageFailedError(TenureError):
    """A stage of a task failed."""

    def __init__(self, message: str, *, ends_run: bool) -> None:
        super().__init__(message)
        self.ends_run = ends_run


def execute(task: Mapping[str, Any], context: Context) -> list[StageRecord]:
    """Execute the stages of ``task``, whose references are resolved, and return their records.

    Raises:
        StageFailedError: one failed. How each ended is in the steps of the run.
    """
    stages = task["stages"]
    runtime.follow(task, context)
    hidden = Hidden.of_task(task)
    stops = bool(task.get("stop_on_failure", True))
    records: list[StageRecord] = []
    failures: list[tuple[int, Exception]] = []
    for number, stage in enumerate(stages):
        name = hidden.scrub(_name(stage))
        if failures and stops:
            records.append(StageRecord(stage=name, status="skipped"))
            continue
        record, error = _stage(number, name, stage, context, hidden)
        records.append(record)
        if error is not None:
            failures.append((number, error))
        context.progress((len(records), len(stages)), f"{name[:NOTE_CHARS_MAX]} {record.status}")
    if failures:
        raise _told(failures, records, task) from failures[0][1]
    return records


def _stage(
    number: int, name: str, stage: Mapping[str, Any], context: Context, hidden: Hidden
) -> tuple[StageRecord, Exception | None]:
    started_ns = context.clock.elapsed_ns()
    step = f"{number + 1}:{_UNFIT.sub('_', name)}"[:_STEP_CHARS_MAX]
    result, error = None, None
    try:
        result = _once(step, stage, context, hidden)
    except Exception as raised:  # noqa: BLE001 - any code may stand in a service
        error = raised
    seconds = round(max(0, context.clock.elapsed_ns() - started_ns) / SECOND_NS, 6)
    if error is None:
        return StageRecord(stage=name, status="done", duration_s=seconds, result=result), None
    text = " ".join(str(error).split())[:ERROR_CHARS_MAX]
    return StageRecord(stage=name, status="failed", duration_s=seconds, error=text), error


def _once(step: str, stage: Mapping[str, Any], context: Context, hidden: Hidden) -> Any:
    """Have a stage called unless an earlier attempt did; return the kept part of its result.

    Tasks that a stage puts into queues come into being when the run ends well, so one that did and whose attempt then
    failed has put nothing: it is called again.
    """
    is_called = False

    def call() -> dict[str, Any]:
        nonlocal is_called
        is_called, before = True, runtime.puts()
        result = _call(stage, hidden)
        return {"result": result, "puts": runtime.puts() - before}

    kept = context.step(step, call)
    if kept["puts"] and not is_called:
        kept = call()
    return kept["result"]


def _call(stage: Mapping[str, Any], hidden: Hidden) -> Any:
    """Call the method that a stage names and return the part of its result that may be kept.

    Raises:
        ScrubbedError: whatever it raised, without the secrets of the task.
    """
    try:
        with entered(Transaction(stage["metadata"])):
            return _kept(_returned(_method(stage), stage["params"]), hidden)
    except CONTROL:
        raise
    except BaseException as error:  # noqa: BLE001 - any code may stand in a service, and sys.exit(text) is an error too
        raise without_secrets(error, hidden) from None


def _returned(method: Callable[..., Any], params: Mapping[str, Any]) -> Any:
    """Return the result of ``method``; ``sys.exit(0)`` means that it is done, as in any job."""
    try:
        return method(**params)
    except SystemExit as left:
        if is_clean_exit(left):
            return None
        raise


def _method(stage: Mapping[str, Any]) -> Callable[..., Any]:
    locator, name = Locator(), stage["name"]
    for word in (name, stage["method"]):
        if not word.isidentifier() or word.startswith("_"):
            raise LocatorError(f"{word[:80]!r} is no name of a class or method that a task may call")
    found = class_of(stage["locator"].lower(), name)
    is_service = stage["locator"] == "SERVICE"
    caller = locator.get_service(found, dict(stage["metadata"])) if is_service else locator.get_manager(found)
    method = getattr(caller, stage["method"], None)
    if not callable(method):
        raise LocatorError(f"{name} has no method {stage['method']!r}")
    called: Callable[..., Any] = method
    return called


def _kept(value: Any, hidden: Hidden) -> Any:
    """Return the part of a result that the record keeps: small JSON, without secrets."""
    if value is None:
        return None
    try:
        plain = read_json(msgspec.json.encode(hidden.scrubbed(msgspec.to_builtins(value))))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return f"<{type(value).__name__}>"
    size = len(msgspec.json.encode(plain))
    return plain if size <= RESULT_BYTES_MAX else f"<{type(value).__name__} of {size} bytes>"


def _told(failures: list[tuple[int, Exception]], records: list[StageRecord], task: Mapping[str, Any]) -> Exception:
    number = failures[0][0]
    skipped = sum(1 for each in records if each.status == "skipped")
    more = f"; {len(failures) - 1} more failed" if len(failures) > 1 else ""
    more += f"; {skipped} not tried, because stop_on_failure is set" if skipped else ""
    what = f"task {task['name'][:NOTE_CHARS_MAX]!r}: " if task.get("name") else ""
    where = f"stage {number + 1} of {len(records)} ({records[number].stage})"
    ends_run = all(getattr(error, "ends_run", False) for _, error in failures)
    return StageFailedError(f"{what}{where} failed: {records[number].error}{more}", ends_run=ends_run)


def _name(stage: Mapping[str, Any]) -> str:
    return f"{stage['name'][:80]}.{stage['method'][:80]}"


def as_result(task: Mapping[str, Any], records: list[StageRecord]) -> dict[str, Any]:
    """Return the result for the run's record: the task's own fields, and each stage."""
    stages = [msgspec.to_builtins(record) for record in records]
    if len(msgspec.json.encode(stages)) > RESULTS_BYTES_MAX:
        stages = [{**stage, "result": "<left out: all results together are too large>"} for stage in stages]
    engine = task.get("executionEngine", "BaseWorker")
    return {"name": task.get("name", ""), "executionEngine": engine, "stages": stages}
