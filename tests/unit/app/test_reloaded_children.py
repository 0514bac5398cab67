"""Children that start after a reload go by the configuration in effect, not by that of the start."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from typing import Any

import pytest

from supervisor.app import tree as module
from supervisor.app.tree import Tree
from supervisor.core.jobs.registry import Registry, job, registry
from supervisor.core.supervision.scoreboard import Board, board_words
from supervisor.reload.audiences import ROLES, Audience
from supervisor.reload.config_memfd import Brief, Handover
from supervisor.settings.schedules.profiles import policies_of
from supervisor.settings.sections.models import Settings


@job("reloaded.slow")
def slow() -> None:
    """Take long."""


def profiles_of(timeout: str) -> Settings:
    """Return settings whose jobs have this timeout."""
    return Settings.model_validate({"profiles": {"default": {"timeout": timeout}}})


@pytest.mark.parametrize("role", sorted(ROLES))
def test_a_child_gives_runs_the_policies_of_the_profiles_in_effect(
    monkeypatch: pytest.MonkeyPatch, role: Audience
) -> None:
    """What was enqueued over HTTP after a reload had the timeout of the start, until the replica was restarted."""
    known = Registry()
    known.add(registry.find(slow))
    known.use(policies_of(profiles_of("10m").profiles))
    monkeypatch.setattr(module, "registry", known)
    board = Board(memoryview(bytearray(8 * board_words(slots=1, inflight=1))).cast("Q"), slots=1, inflight=1)
    board.header.config_epoch = board.header.worker_epoch = 1
    with closing(Handover()) as handover:
        handover.open(1, in_effect=0)
        handover.write(1, plan=b"{}", settings=profiles_of("2h"), brief=Brief("", {}), definitions=())
        handover.take(1, in_effect=0)
        parts: dict[str, Any] = {field.name: None for field in dataclasses.fields(Tree)}
        tree = Tree(**parts | {"settings": profiles_of("10m"), "definitions": (), "board": board})
        tree._now(handover.reader(role), is_worker=role is Audience.WORKER)

    assert known.get("reloaded.slow").base.timeout_s == 7200
