"""The quick way to run scripts gives the same answers as fakeredis' own, in whole worlds."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from redis.exceptions import ResponseError

from supervisor.core.effects import Call
from supervisor.store.client.replies import fenced, translate
from supervisor.store.scripts import script
from supervisor.testing import server
from supervisor.testing.scripting import QuickStore
from tests.simulation.scenario import run

SEEDS = (pytest.param(2, marks=pytest.mark.long), 11)


class PlainStore(QuickStore):
    """Sends every script through fakeredis' connection, parser and command table."""

    def run(self, call: Call[Any], *, timeout_s: float | None = None) -> Any:
        """Run one call the long way."""
        try:
            reply = self.raw.eval(script(call.script).source, len(call.keys), *call.keys, *call.args)
        except ResponseError as error:
            raise (fenced(error, call) or translate(error, where=self.where, operation=call.script)) from error
        return call.parse(reply)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_world_takes_the_same_course_on_fakeredis_own_interpreter(seed: int) -> None:
    """Every decision and every delay of a world follows from the replies: one that differs would show."""
    quick = run(seed)
    with patch.object(server, "QuickStore", PlainStore):
        plain = run(seed)

    assert [str(told) for told in quick.history] == [str(told) for told in plain.history]
    assert (quick.fired, quick.calls) == (plain.fired, plain.calls)
