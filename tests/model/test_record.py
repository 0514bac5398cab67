"""The model's Redis against the project's Lua: the same calls, the same codes, the same record."""

from __future__ import annotations

from random import Random

import pytest

from supervisor.core.election.lease import Term
from supervisor.core.errors import FencedError
from supervisor.store.election.leases import CandidateInfo, Leases, LeaseView
from supervisor.store.keys import Keys
from supervisor.store.schedules.fire import Schedules
from supervisor.store.wire.fire import NOTHING, FireCode, FireItem, What
from supervisor.testing.scripting import QuickStore
from supervisor.testing.server import driven_time
from tests.model.record import (
    DURATION,
    Campaign,
    Fire,
    Promote,
    Record,
    Redis,
    Release,
    Renew,
    Request,
)

TICK_MS = 1000
CALLS = 120
START_S = 1_000_000


class Real:
    """The scripts on fakeredis, spoken to in the model's small numbers."""

    def __init__(self) -> None:
        self.leases = Leases(Keys("model"))
        self.schedules = Schedules(Keys("model"))
        self.store = QuickStore()
        self.epochs = {0: 0}  # the model's to Redis': those begin at its clock

    def lease(self, request: Request) -> LeaseView:
        """Send an election request."""
        duration_ms = DURATION * TICK_MS
        match request:
            case Campaign(replica, _, nonce, floor, mode, epoch_seen, seq_seen):
                call = self.leases.campaign(
                    replica=str(replica),
                    nonce=_nonce(nonce),
                    duration_ms=duration_ms,
                    floor=self.epochs[floor],
                    mode=mode,  # type: ignore[arg-type]  # the model has the three that matter to it
                    observed_epoch=self.epochs[epoch_seen],
                    observed_seq=seq_seen,
                    info=CandidateInfo(replica=str(replica)),
                )
            case Renew(_, _, epoch, nonce):
                call = self.leases.renew(Term(self.epochs[epoch], _nonce(nonce), 0), duration_ms=duration_ms)
            case Release(_, _, epoch, nonce):
                call = self.leases.release(Term(self.epochs[epoch], _nonce(nonce), 0), reason="model")
            case Promote(_, _, epoch, nonce, new_nonce):
                call = self.leases.promote(
                    Term(self.epochs[epoch], _nonce(nonce), 0), new_nonce=_nonce(new_nonce), duration_ms=duration_ms
                )
            case _:
                raise AssertionError(request)
        return self.store.run(call)

    def is_fenced(self, epoch: int, nonce: int) -> bool:
        """Send a fire of a schedule that does not exist: it is refused as stale, or by the fence before that."""
        item = FireItem("unknown", 1, 0, 1000, 1000, None, NOTHING, what=What.MISSED)
        try:
            reply = self.store.run(self.schedules.fire(Term(self.epochs[epoch], _nonce(nonce), 0), items=[item]))
        except FencedError:
            return True
        assert [result.code for result in reply.results] == [FireCode.STALE]
        return False


def _nonce(number: int) -> str:
    return f"{number:032x}"


def _same(real: Real, view: LeaseView, record: Record, now: int) -> bool:
    holder = str(record.holder) if record.holder else ""
    nonce = _nonce(record.nonce) if record.nonce else ""
    left = record.until - now if record.holder else 0
    seen = (view.epoch, view.nonce, view.holder, view.seq)
    return seen == (real.epochs[record.epoch], nonce, holder, record.seq) and (
        not holder or view.remaining_ms == left * TICK_MS
    )


def _draw(rng: Random, record: Record, epochs: int) -> Request:
    """A request that may be right, old or a stranger's, right ones often enough."""
    replica, some_nonce = rng.randrange(1, 4), rng.randrange(1, 9)
    epoch, nonce = (record.epoch, record.nonce) if rng.random() < 0.6 else (rng.randrange(epochs), some_nonce)
    nonce = nonce or some_nonce  # Lua refuses an empty one, the model has none
    kind = rng.choice([Campaign, Campaign, Renew, Release, Promote])
    if kind is Campaign:
        mode = rng.choice(["cold", "free", "expired"])
        seq = record.seq if rng.random() < 0.5 else rng.randrange(4)
        # A replica's floor is never above what Redis granted, unless data was lost: that is no part of the model.
        return Campaign(replica, 0, some_nonce, rng.randrange(record.fence + 1), mode, epoch, seq)
    if kind is Promote:
        return Promote(record.holder, 0, epoch, nonce, rng.choice([other for other in range(20, 26) if other != nonce]))
    return Renew(replica, 0, epoch, nonce) if kind is Renew else Release(replica, 0, epoch, nonce)


@pytest.mark.share(4)
@pytest.mark.parametrize("seed", range(20))
def test_the_models_lease_is_the_scripts(seed: int) -> None:
    """What is proved of the model is proved of the Lua only as far as they agree."""
    rng, model, record, now = Random(seed), Redis(), Record(), 0
    with driven_time(lambda: START_S + now * TICK_MS / 1000):
        real = Real()
        for _ in range(CALLS):
            now += rng.random() < 0.3
            request = _draw(rng, record, len(real.epochs))
            before = record
            record, answer = model.run(record, request, now)
            view = real.lease(request)
            if record.epoch not in real.epochs:
                assert view.epoch > real.epochs[before.epoch], request
                real.epochs[record.epoch] = view.epoch
            assert view.code.value.replace("RECLAIMED", "RENEWED") == answer.code, request
            assert _same(real, view, record, now), request


@pytest.mark.parametrize("seed", range(5))
def test_the_models_fence_is_the_scripts(seed: int) -> None:
    """Whatever becomes of a fire, one of another term is refused, and one of the standing term is not."""
    rng, model, record = Random(seed), Redis(), Record()
    with driven_time(lambda: START_S):
        real = Real()
        for _ in range(CALLS):
            if rng.random() < 0.3:
                request = _draw(rng, record, len(real.epochs))
                record, _ = model.run(record, request, 0)
                real.epochs.setdefault(record.epoch, real.lease(request).epoch)
            is_own = rng.random() < 0.5 and record.nonce > 0
            epoch, nonce = (
                (record.epoch, record.nonce) if is_own else (rng.choice(list(real.epochs)), rng.randrange(1, 9))
            )
            _, code = model.fire(record, Fire(1, 0, epoch, nonce, record.mark, record.mark + 1), 0)
            assert real.is_fenced(epoch, nonce) == (code == "FENCED"), (epoch, nonce, record)
