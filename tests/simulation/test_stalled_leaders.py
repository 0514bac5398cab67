"""Leaders that stood still when they died together with the data, and those that are answered too late or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from supervisor.testing.world import Actor, Fate, S
from tests.simulation.cluster import cluster

STALLED_S = (0.4, 1.4, 2.3, 4.1, 4.9)
TENTHS = (0, 3, 6, 9)


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("stalled_s", "moments"),
    [
        *((stalled_s, TENTHS[number % 2 :: 2]) for number, stalled_s in enumerate(STALLED_S)),
        *(pytest.param(stalled_s, TENTHS, marks=pytest.mark.long) for stalled_s in STALLED_S),
    ],
)
def test_what_a_leader_was_behind_with_as_it_died_with_the_data_is_counted(
    stalled_s: float, moments: Sequence[int]
) -> None:
    """Nobody decided anything since it stood still, however late the others saw the data last."""
    for tenths in moments:
        with cluster(3) as it:
            it.pass_s(20 + tenths / 10)
            leader = it.leader
            leader.pause(60 * S)
            it.pass_s(stalled_s)
            leader.kill()
            it.server.empty()
            it.pass_s(30)

            assert it.repeated() == {}
            entries = [d.nominal_ms for d in it.server.decisions if d.schedule == "each"]
            due = (max(entries) - min(entries)) // 1000 + 1
            counted = sum(d.missed for d in it.server.decisions if d.schedule == "each")
            assert due <= it.decided("each") <= due + counted, "each due time was fired or counted"
            assert counted <= 7, "a lease and a renewal at most"


def answer_late(actor: Actor, **change: Any) -> None:
    """Let whatever ``actor`` asks be carried out, and answered as ``change`` of its fate says."""
    send = actor._send

    def late(step: Any, number: int, fate: Fate) -> None:
        send(step, number, replace(fate, **change))

    actor._send = late  # type: ignore[method-assign]


def test_renewals_that_are_answered_too_late_keep_the_lease_for_nobody() -> None:
    """Each is carried out, so that a standby would see the holder renew for ever."""
    with cluster(2) as it:
        leader = it.leader
        for actor in (leader.elector, leader.scheduler):
            answer_late(actor, request_ns=S * 3 // 10, reply_ns=S * 9 // 10)
        it.pass_s(15)

        assert it.leader is not leader
        decided = it.decided("each")
        it.pass_s(10)
        assert it.decided("each") >= decided + 9


@pytest.mark.parametrize("mute", [1, 2])
def test_a_leader_whose_scheduler_gets_no_answer_gives_way_once(mute: int) -> None:
    """Its agent is answered, and so it would renew for ever; where both are mute, they do not pass the lease around."""
    with cluster(2) as it:
        former = it.leader
        others = [replica for replica in it.replicas if replica is not former]
        for replica in [former, *others][:mute]:
            answer_late(replica.scheduler, is_reply_lost=True)
        it.pass_s(300)

        resigned = [told.who for told in it.world.history if told.event == "refusals_resigned"]
        assert len(set(resigned)) == len(resigned) == mute
        assert (it.leader is former) == (mute == 2)


def test_of_three_replicas_the_one_whose_scheduler_is_answered_leads_in_the_end() -> None:
    """One that gave way took the lease again from the next that did, and kept it for an hour."""
    for well in (1, 2):
        with cluster(3) as it:
            others = [replica for replica in it.replicas if replica is not it.leader]
            healthy = others[well - 1]
            for replica in it.replicas:
                if replica is not healthy:
                    answer_late(replica.scheduler, is_reply_lost=True)
            it.pass_s(240)

            assert it.leader is healthy
