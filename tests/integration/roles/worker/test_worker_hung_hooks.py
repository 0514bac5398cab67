"""Hooks that hang for ever: nothing ends their threads, so the process is replaced before none is left."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.model import Kind
from supervisor.core.supervision.states import Verb
from supervisor.roles.worker.attempt import hooks as hooks_module
from supervisor.roles.worker.attempt.context import Context
from supervisor.roles.worker.attempt.hooks import HUNG_MAX, HUNG_NS, HookFailedError, Pipeline
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
"""
PROFILES = {
    "p": {"hooks": {"enabled": ["thanging:Hanging"], "timeout": "10ms"}},
    "q": {"hooks": {"enabled": ["thanging:Stuck"]}},
}


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A module whose hook returns when this is set, as one that waits for a peer which is gone."""
    (tmp_path / "thanging.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    thanging: Any = importlib.import_module("thanging")
    thanging.held = threading.Event()
    yield thanging.held
    thanging.held.set()
    del sys.modules["thanging"]


def ask(pipeline: Pipeline, kind: Kind) -> None:
    """Ask the hook, which does not answer in its time."""
    hooks = pipeline.of("p")
    assert hooks is not None
    asked = next(each[0] for each in hooks.at.values() if each)
    context = Context(run_id="r1", job="j", kind=kind)

    def call() -> Any:
        if kind is Kind.ASYNC:
            return asyncio.run(pipeline.call_async(asked, "gate", context))
        return pipeline.call(asked, "gate", context)

    with pytest.raises(HookFailedError, match="did not answer"):
        call()


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

    @job("guarded", profile=profile, soft_timeout=0.05)
    async def guarded() -> None:
        raise AssertionError("its hook never answers")

    async with shop.worker():
        for _ in range(HUNG_MAX):
            shop.enqueue("guarded")
        await until(lambda: shop.board.rows[0].request_verb == Verb.RECYCLE, what="it to ask")
    assert not held.is_set()
