"""The law of lost data about requests that the network delivers twice: their sender is judged by what it knew then."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.scheduler.schedule_cache import Watermarks
from supervisor.testing.world import Fate, Network, S
from tests.simulation.cluster import Cluster, cluster
from tests.simulation.repeats import repeats
from tests.simulation.witness import Witness

WAY_NS = 300 * MILLISECOND_NS


class Repeating(Network):
    """A slow network that delivers each request again, so much later."""

    def __init__(self, normal: Network, again_ns: int | None) -> None:
        super().__init__(normal.rng)
        self.again_ns = again_ns

    def fate(self) -> Fate:
        """Return the fate of a call that takes its time."""
        return replace(super().fate(), request_ns=WAY_NS, repeated_after_ns=self.again_ns)


def rolled_back(it: Cluster, again_ns: int | None) -> Witness:
    """Let ``it`` lose one fire, whose answer the leader had, while its elector sees nothing; return what was seen."""
    witness = Witness(it.world, changing="")
    it.pass_s(10.5 - it.world.now_ns / S)
    snapshot = it.server.snapshot()
    it.world.network = Repeating(it.world.network, again_ns)
    it.pass_s(1)
    it.leader.elector.pause(2 * S)
    it.world.tell("server", "rolled_back")
    it.server.restore(snapshot)
    witness.forgive()
    it.pass_s(10)
    return witness


def test_what_is_delivered_again_after_a_loss_carries_no_flag_whenever_it_comes() -> None:
    """It was written before the loss: that its sender finds the loss then, and asks with the flag, changes no copy."""
    is_flagged = set[bool]()
    for again_ms in (*range(800, 1600, 100), None):
        with cluster(1) as it:
            witness = rolled_back(it, again_ms and again_ms * MILLISECOND_NS)

            assert witness.problems == []
            assert repeats(it.world, witness.flagged, witness.sent_ns) == [], again_ms
            ((repeated, _),) = it.repeated().items()
            of_it = [index for index, d in enumerate(it.server.decisions) if (d.schedule, d.nominal_ms) == repeated]
            is_flagged.add(witness.flagged[of_it[-1]])
    assert is_flagged == {False, True}, "the copy or the later request came first"


def test_a_leader_that_asks_again_without_the_flag_is_found_out() -> None:
    """Its request is a later one than the answer to the first."""

    def unnoticed(self: Watermarks, schedule: str, mark_ms: int) -> None:
        self._marks[schedule] = mark_ms

    with patch.object(Watermarks, "remember", unnoticed), cluster(1) as it:
        witness = rolled_back(it, None)

        assert any("without the flag" in problem for problem in repeats(it.world, witness.flagged, witness.sent_ns))
