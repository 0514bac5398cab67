"""Hooks that hang for ever: nothing ends their threads, so the process is replaced before none is left."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.model import Kind
from supervisor.core.supervision.states import Verb
from supervisor.roles.worker.attempt import hooks as hooks_module
from supervisor.roles.worker.attempt.context import Context
from supervisor.roles.worker.attempt.hooks import HUNG_MAX, HUNG_NS, BoundHook, HookFailedError, Pipeline
from supervisor.settings.sections.models import Settings
from tenure import job
from tests.integration.roles.worker.worker_fixture import WorkerKit, until
from tests.kit.clock import FakeClock
from tests.kit.waiting import wait_until

CODE = """
class Hanging:
    def gate(self, context): held.wait()

class Stuck:
    def dispatch(self, context): held.wait()

class Connecting:
    def __init__(self):
        begun.append(1)
        built.append(held.wait(30))
    def gate(self, context): asked.append(context.run_id)

class Leaning(Connecting):
    def dispatch(self, context): ...
"""
PROFILES = {
    "p": {"hooks": {"enabled": ["thanging:Hanging"], "timeout": "10ms"}},
    "q": {"hooks": {"enabled": ["thanging:Stuck"]}},
}
BUILT = {
    "r": {"hooks": {"enabled": ["thanging:Connecting"], "timeout": "20ms"}},
    "s": {"hooks": {"enabled": ["thanging:Connecting"]}},
    "t": {"hooks": {"enabled": ["dispatch/thanging:Leaning"]}},
}


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A module whose hook returns when this is set, as one that waits for a peer which is gone."""
    (tmp_path / "thanging.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    thanging: Any = importlib.import_module("thanging")
    thanging.held, thanging.begun, thanging.built, thanging.asked = threading.Event(), [], [], []
    yield thanging.held
    thanging.held.set()
    del sys.modules["thanging"]


def call(pipeline: Pipeline, kind: Kind, asked: BoundHook, run_id: str = "r1") -> Any:
    """Ask a hook."""
    context = Context(run_id=run_id, job="j", kind=kind)
    ask = pipeline.step(asked, "gate", context)
    return asyncio.run(ask()) if kind is Kind.ASYNC else ask()


def only(pipeline: Pipeline, profile: str) -> BoundHook:
    """Return the hook of a profile."""
    hooks = pipeline.of(profile)
    assert hooks is not None
    return next(each[0] for each in hooks.at.values() if each)


def ask(pipeline: Pipeline, kind: Kind) -> None:
    """Ask the hook, which does not answer in its time; again where a busy machine did not even begin to within that."""
    late = len(pipeline.late)
    while len(pipeline.late) == late:
        with pytest.raises(HookFailedError, match="did not answer"):
            call(pipeline, kind, only(pipeline, "p"))


@pytest.mark.parametrize("kind", list(Kind))
def test_hooks_that_hang_are_told_from_those_that_are_late(held: threading.Event, kind: Kind) -> None:
    """Each kept its thread, and after the eighth no hook of any profile was called in that process again."""
    clock = FakeClock()
    pipeline = Pipeline(Settings.model_validate({"profiles": PROFILES}, strict=False), clock, kind)
    for _ in range(HUNG_MAX - 1):
        ask(pipeline, kind)
    clock.now_ns += HUNG_NS
    assert not pipeline.is_stuck, "it has threads enough"
    ask(pipeline, kind)
    assert not pipeline.is_stuck, "that one may only be late"
    clock.now_ns += HUNG_NS
    assert pipeline.is_stuck

    held.set()
    wait_until(lambda: not pipeline.is_stuck, what="its threads to be free")


@pytest.mark.parametrize("profile", list(PROFILES))
async def test_a_worker_whose_hooks_hang_asks_for_its_successor(
    shop: WorkerKit, held: threading.Event, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    """Whatever it ran next would be put off, or fail at its soft timeout, until a person restarted it."""
    monkeypatch.setattr(hooks_module, "HUNG_NS", 0)
    profiles = Settings.model_validate({"profiles": PROFILES}, strict=False).profiles
    shop.settings = shop.settings.model_copy(update={"profiles": profiles})

    @job("guarded", profile=profile, soft_timeout=0.3)
    async def guarded() -> None:
        raise AssertionError("its hook never answers")

    async with shop.worker():
        for _ in range(HUNG_MAX):
            shop.enqueue("guarded")
        await until(lambda: shop.board.rows[0].request_verb == Verb.RECYCLE, what="it to ask")
    assert not held.is_set()


@pytest.mark.parametrize("kind", list(Kind))
def test_a_hook_that_hangs_as_it_is_built_is_given_up_and_built_anew(held: threading.Event, kind: Kind) -> None:
    """Its constructor had no time limit, in the loop of all other runs or in the main thread of the plain ones."""
    clock, thanging = FakeClock(), sys.modules["thanging"]
    pipeline = Pipeline(Settings.model_validate({"profiles": BUILT}, strict=False), clock, kind)

    def is_begun(run_id: str, count: int) -> bool:  # in 20 ms, in which a busy machine may begin nothing
        with pytest.raises(HookFailedError, match="did not answer"):
            call(pipeline, kind, only(pipeline, "r"), run_id)
        return len(thanging.begun) >= count

    wait_until(lambda: is_begun("builds", 1), what="one that builds")
    is_begun("waits for it", 1)
    wait_until(lambda: len(pipeline.late) == len(thanging.begun), what="the one that waits to give up")
    wait_until(lambda: is_begun("builds anew", 2), what="another one that builds")
    wait_until(lambda: len(pipeline.late) == len(thanging.begun), what="all others to give up")

    clock.now_ns += HUNG_NS
    held.set()
    wait_until(lambda: not pipeline.late, what="those that build to end")
    assert not thanging.asked, "nobody waits for these answers any more"

    def answers() -> bool:  # in 20 ms, too
        with suppress(HookFailedError):
            call(pipeline, kind, only(pipeline, "r"), "later")
            return True
        return False

    wait_until(answers, what="its answer")
    assert set(thanging.asked) == {"later"}
    assert thanging.built == [True] * len(thanging.begun)


def test_all_jobs_of_a_profile_share_its_hooks(held: threading.Event) -> None:
    """Each job had hooks of its own: fifty jobs opened fifty pools of connections in every process."""
    held.set()
    pipeline = Pipeline(Settings.model_validate({"profiles": BUILT}, strict=False), FakeClock(), Kind.SYNC)
    for run_id in ("of one job", "of another"):
        call(pipeline, Kind.SYNC, only(pipeline, "s"), run_id)
    assert sys.modules["thanging"].built == [True]
    assert pipeline.of("s") is not pipeline.of("r"), "whose timeout, and maybe whose arguments, are others"


async def test_calls_at_once_build_a_hook_once(held: threading.Event) -> None:
    """As it was while it was built in the loop."""
    pipeline = Pipeline(Settings.model_validate({"profiles": BUILT}, strict=False), FakeClock(), Kind.ASYNC)
    asked = only(pipeline, "s")
    contexts = [Context(run_id=f"r{number}", job="j", kind=Kind.ASYNC) for number in range(4)]
    calls = asyncio.gather(*(pipeline.step(asked, "gate", context)() for context in contexts))
    asyncio.get_running_loop().call_later(0.05, held.set)
    await calls
    assert sys.modules["thanging"].built == [True]
    assert sorted(sys.modules["thanging"].asked) == ["r0", "r1", "r2", "r3"]


@pytest.mark.parametrize("profile", ["s", "t"])
async def test_a_hook_that_is_being_built_holds_up_no_other_run(
    shop: WorkerKit, held: threading.Event, profile: str
) -> None:
    """One that connects to a peer which is gone stopped every coroutine of the process, for each run anew."""
    profiles = Settings.model_validate({"profiles": BUILT}, strict=False).profiles
    shop.settings = shop.settings.model_copy(update={"profiles": profiles})

    @job("guarded", profile=profile)
    async def guarded() -> None: ...

    @job("free")
    async def free() -> None:
        held.set()

    async with shop.worker():
        shop.enqueue("guarded")
        shop.enqueue("free")
        await until(lambda: bool(sys.modules["thanging"].built), what="the hook to be built")
    assert sys.modules["thanging"].built == [True], "the other run came first"
