"""The hooks around a run: their order, what ends it, what is undone, and what may never change how a job ended."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from supervisor.core.jobs import registry as jobs_registry
from supervisor.core.jobs.hooks import UnknownProfileError, VetoedError
from supervisor.core.jobs.registry import Registry
from supervisor.core.model import Kind
from supervisor.roles.worker.attempt.context import SoftTimeout
from supervisor.roles.worker.attempt.hooks import Pipeline
from supervisor.roles.worker.attempt.invocation import JobInvoker
from supervisor.settings.sections.models import Settings
from tenure import Again, Context, Run, job
from tests.kit.clock import FakeClock
from tests.unit.roles.worker.odd_ends import ENDS, asks_again_unreadably, exits_with_an_array, fails

CODE = """
trace, answers, released = [], {}, None

def say(hook, point, *args):
    trace.append(" ".join([point, hook, *args]))
    answer = answers.get((point, hook))
    if isinstance(answer, BaseException):
        raise answer
    if answer is released:
        return None
    return answer

class First:
    def __init__(self, name="first"):
        self.name = name
    def gate(self, context): return say(self.name, "gate")
    def filter(self, context): return say(self.name, "filter")
    def reserve(self, context): return say(self.name, "reserve")
    def unreserve(self, context): return say(self.name, "unreserve")
    def after(self, context, outcome, error): return say(self.name, "after", outcome, error)

class Second(First):
    def __init__(self): super().__init__("second")
    async def filter(self, context): return say(self.name, "filter")
    async def unreserve(self, context): return say(self.name, "unreserve")

class Third:
    def reserve(self, context): return say("third", "reserve")
    def unreserve(self, context): return say("third", "unreserve")

class Elsewhere:
    def dispatch(self, context): return say("elsewhere", "dispatch", str(context.arguments)) or 42

class Hanging:
    def filter(self, context): held.wait()

class Broken:
    def __init__(self): raise OSError("no disk")
    def filter(self, context): ...
"""


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module with hooks that note what they are asked, and answer as the test says."""
    (tmp_path / "tspies.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    tspies: Any = importlib.import_module("tspies")
    tspies.held = threading.Event()
    yield tspies
    tspies.held.set()
    del sys.modules["tspies"]


class Way:
    """A profile's hooks in a worker of one kind, and runs that pass through them."""

    def __init__(self, kind: Kind, **hooks: Any) -> None:
        self.kind = kind
        self.clock = FakeClock()
        settings = Settings.model_validate({"profiles": {"default": {}, "p": {"hooks": hooks}}}, strict=False)
        self.pipeline = Pipeline(settings, self.clock, kind)

    def run(self, job: Callable[[], Any], *, may_have_left: bool = False, on_failure: Any = None) -> Any:
        """Let one attempt pass; return what the job returned, or raise what ended it."""

        def plain(n: int) -> Any:
            return job()

        async def coroutine(n: int) -> Any:
            return job()

        context = Context(run_id="r1", job="j", kind=self.kind)
        if on_failure is not None:
            context.on_failure(on_failure)
        spec = jobs_registry._spec("j", plain if self.kind is Kind.SYNC else coroutine, {}, ())
        calling = JobInvoker(kind=self.kind, clock=self.clock, pipeline=self.pipeline)
        call = calling.prepare(spec, context, "p", may_have_left=may_have_left)
        return call(n=1) if self.kind is Kind.SYNC else asyncio.run(call(n=1))


@pytest.fixture(params=list(Kind))
def way(request: pytest.FixtureRequest, hooks: Any) -> Iterator[Way]:
    """Three hooks in a pool of either kind."""
    del hooks
    made = Way(request.param, enabled=["tspies:First", "tspies:Second", "tspies:Third"])
    yield made
    asyncio.run(made.pipeline.close_async(1))  # threads that nobody ends are found by a collection of all objects


ENTERED = [
    "gate first", "gate second", "filter first", "filter second", "reserve first", "reserve second", "reserve third",
]  # fmt: skip


def test_hooks_are_asked_point_by_point_in_the_order_of_the_list(way: Way, hooks: Any) -> None:
    """Gates before filters before reservations; afterwards they hear how it ended, and what was taken stays taken."""
    assert way.run(lambda: 7) == 7
    assert hooks.trace == [*ENTERED, "after first ok ", "after second ok "]


def test_the_handle_of_a_run_that_is_enqueued_on_failure_is_not_awaited(way: Way) -> None:
    """``ctx.on_failure(other.enqueue)`` held the run up until the other one had ended."""
    with capture_logs() as lines, pytest.raises(ValueError, match="no luck"):
        way.run(fails, on_failure=lambda: Run("other"))
    assert "on_failure_failed" not in {line["event"] for line in lines}


def test_what_else_can_be_awaited_is_awaited_on_failure(hooks: Any) -> None:
    """As a request of an HTTP library, which begins with that."""
    way, called = Way(Kind.ASYNC, enabled=["tspies:First"]), list[str]()

    class Request:
        def __await__(self) -> Iterator[None]:
            yield called.append("sent")

    with pytest.raises(ValueError, match="no luck"):
        way.run(fails, on_failure=Request)
    assert called == ["sent"]
    asyncio.run(way.pipeline.close_async(1))


def test_what_was_reserved_is_undone_when_the_job_returns_a_coroutine(way: Way, hooks: Any) -> None:
    """Nobody awaits it, so its work was not done, and the run fails by it."""

    async def forgotten() -> None:
        raise AssertionError

    with pytest.raises(TypeError, match="returned an awaitable that nobody awaits"):
        way.run(forgotten)
    assert hooks.trace[len(ENTERED) :][:3] == ["unreserve third", "unreserve second", "unreserve first"]


@pytest.mark.parametrize("end", [fails, exits_with_an_array, asks_again_unreadably])
def test_what_was_reserved_is_undone_in_reverse_when_the_job_fails(way: Way, hooks: Any, end: Any) -> None:
    """Each once, and before anybody hears how it ended."""
    with pytest.raises((ValueError, SystemExit, Again)) as ended:
        way.run(end)

    undone, text = ["unreserve third", "unreserve second", "unreserve first"], ENDS[ended.type]
    assert hooks.trace == [*ENTERED, *undone, f"after first {text}", f"after second {text}"]


@pytest.mark.parametrize("point", ["gate", "filter", "reserve"])
def test_the_first_hook_that_says_no_ends_the_run_before_the_job(way: Way, hooks: Any, point: str) -> None:
    """Nobody is asked after it; only what was reserved before is undone."""
    hooks.answers[point, "second"] = "over budget"

    with pytest.raises(VetoedError, match=f"{point} tspies:Second: over budget") as caught:
        way.run(fails)

    assert caught.value.veto.delay_s is None
    asked = ENTERED[: ENTERED.index(f"{point} second") + 1]
    undone = ["unreserve first"] if point == "reserve" else []
    why = f"rejected {point} tspies:Second: over budget"
    assert hooks.trace == [*asked, *undone, f"after first {why}", f"after second {why}"]


def test_a_reservation_that_failed_is_undone_too(way: Way, hooks: Any) -> None:
    """Nobody knows whether it took something before it raised."""
    hooks.answers["reserve", "second"] = OSError("connection lost")

    with pytest.raises(VetoedError) as caught:
        way.run(fails)

    assert (caught.value.veto.is_failure, caught.value.veto.delay_s) == (True, 1.0)
    assert hooks.trace[-2:] == ["unreserve second", "unreserve first"]


NO_ERRORS = [SystemExit(0), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]


@pytest.mark.share(3)
@pytest.mark.parametrize("error", NO_ERRORS, ids=repr)
@pytest.mark.parametrize("hook", ["first", "second"])
def test_whatever_a_hook_raises_is_its_failure_and_never_the_end_of_the_job(
    way: Way, hooks: Any, hook: str, error: BaseException
) -> None:
    """A library's ``sys.exit(0)`` would else be taken for a job that has finished, without having begun."""
    hooks.answers["filter", hook] = type(error)(*error.args)  # its traceback would outlive the test with the parameter

    with pytest.raises(VetoedError) as caught:
        way.run(fails)
    assert (caught.value.veto.is_failure, caught.value.veto.reason[:10]) == (True, type(error).__name__[:10])


def test_after_a_crash_the_next_attempt_begins_with_undoing(way: Way, hooks: Any) -> None:
    """The process that died could not; in reverse, before anything is asked."""
    assert way.run(lambda: 7, may_have_left=True) == 7

    assert hooks.trace[:3] == ["unreserve third", "unreserve second", "unreserve first"]
    assert hooks.trace[3:10] == ENTERED
    assert len(hooks.trace) == 12


def test_hooks_that_fail_afterwards_change_nothing(way: Way, hooks: Any) -> None:
    """A finished job stays finished, and one that failed keeps its own error."""
    for hook in ("first", "second"):
        hooks.answers["after", hook] = OSError("audit is down")
    hooks.answers["unreserve", "second"] = OSError("ledger is down")

    assert way.run(lambda: 7) == 7
    with pytest.raises(ValueError, match="no luck"):
        way.run(fails)
    assert "unreserve first" in hooks.trace


def test_a_run_is_put_off_as_long_as_a_hook_asks_and_then_rejected(way: Way, hooks: Any) -> None:
    """No attempt is charged meanwhile; ``defer_max`` bounds it, by the clock of the worker."""
    hooks.answers["filter", "first"] = ("market is closed", "10m")
    vetoes = []
    for _ in range(7):
        with pytest.raises(VetoedError) as caught:
            way.run(fails)
        vetoes.append(caught.value.veto)
        way.clock.now_ns += 600 * 10**9

    assert [veto.delay_s for veto in vetoes] == [600.0] * 6 + [None]
    assert vetoes[-1].reason == "market is closed; put off for 3600 s already"
    assert not any(line.startswith("after") and "deferred" in line for line in hooks.trace)


def test_failures_back_off_and_start_afresh_once_the_hook_answers(way: Way, hooks: Any) -> None:
    """1 s, doubled; a run that came through forgets them."""
    hooks.answers["gate", "first"] = OSError("down")
    delays = []
    for _ in range(3):
        with pytest.raises(VetoedError) as caught:
            way.run(fails)
        delays.append(caught.value.veto.delay_s)
    assert delays == [1.0, 2.0, 4.0]

    hooks.answers.clear()
    assert way.run(lambda: 7) == 7
    hooks.answers["gate", "first"] = OSError("down")
    with pytest.raises(VetoedError) as caught:
        way.run(fails)
    assert caught.value.veto.delay_s == 1.0


@pytest.mark.parametrize("kind", list(Kind))
def test_a_hook_that_hangs_is_given_up_at_its_timeout(hooks: Any, kind: Kind) -> None:
    """The run is put off; its thread is no concern of the others."""
    way = Way(kind, enabled=["tspies:Hanging", "tspies:Third"], timeout="20ms")

    with pytest.raises(VetoedError, match=r"did not answer within 0\.02 s") as caught:
        way.run(fails)
    assert caught.value.veto.is_failure
    assert not hooks.held.is_set()


@pytest.mark.parametrize("kind", list(Kind))
def test_a_hook_that_cannot_be_built_puts_runs_off(hooks: Any, kind: Kind) -> None:
    """As one that fails; the worker and all other runs go on."""
    del hooks
    with pytest.raises(VetoedError, match="cannot be built: OSError: no disk") as caught:
        Way(kind, enabled=["tspies:Broken"]).run(fails)
    assert caught.value.veto.is_failure


@pytest.mark.parametrize("kind", list(Kind))
def test_a_dispatcher_does_what_the_run_is_for(hooks: Any, kind: Kind) -> None:
    """Its result is the run's, and it sees the arguments."""
    way = Way(kind, enabled=["tspies:Third", "tspies:Elsewhere"])

    assert way.run(fails) == 42
    assert hooks.trace == ["reserve third", "dispatch elsewhere {'n': 1}"]


@pytest.mark.parametrize("kind", list(Kind))
def test_a_dispatcher_that_fails_has_what_it_gave_to_on_failure_called(hooks: Any, kind: Kind) -> None:
    """It does the run's work, so the promise holds for it as for a job."""
    hooks.answers["dispatch", "elsewhere"] = OSError("no answer")
    way = Way(kind, enabled=["tspies:Third", "tspies:Elsewhere"])

    with pytest.raises(OSError, match="no answer"):
        way.run(fails, on_failure=lambda: hooks.trace.append("undone"))
    assert hooks.trace == ["reserve third", "dispatch elsewhere {'n': 1}", "undone", "unreserve third"]


def test_a_job_that_was_asked_to_stop_has_its_reservations_undone(hooks: Any) -> None:
    """By a soft timeout, in either kind of pool."""

    def stops() -> None:
        raise SoftTimeout("over")

    way = Way(Kind.SYNC, enabled=["tspies:First"])
    with pytest.raises(SoftTimeout):
        way.run(stops)
    assert hooks.trace[-2:] == ["unreserve first", "after first stopped SoftTimeout"]


def test_a_profile_without_hooks_for_workers_has_none(hooks: Any) -> None:
    """Checks are the leader's, and are not asked twice."""
    del hooks
    way = Way(Kind.ASYNC, enabled=["weekdays"], config={"weekdays": {"days": ["mon"]}})

    assert way.pipeline.of("p") is None
    assert way.pipeline.of("") is None


def test_a_profile_that_is_not_there_is_not_guessed(hooks: Any) -> None:
    """Its hooks might have said no."""
    del hooks
    with pytest.raises(UnknownProfileError, match="profile 'gone' is not in this worker's configuration"):
        Way(Kind.ASYNC).pipeline.of("gone")


def test_a_job_whose_profile_has_no_hooks_is_called_as_it_is(hooks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No context, no frame of ours, nothing paid; the same job under a profile with hooks is."""
    del hooks
    known = Registry()
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", known)

    @job("plain")
    async def plain() -> None: ...

    spec = known.get("plain")
    calling = JobInvoker(kind=Kind.ASYNC, pipeline=Way(Kind.ASYNC, enabled=["tspies:First"]).pipeline)

    assert calling.is_plain(spec)
    assert calling.prepare(spec, Context(run_id="r", job="plain")) is spec.function
    assert not calling.is_plain(spec, "p")
