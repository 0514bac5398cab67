"""One replica of Tenure as far as Redis goes: an elector that searches, a board, and children that follow it."""

from __future__ import annotations

from typing import Any

from supervisor.core.effects import Call
from supervisor.core.election.lease import Term
from supervisor.core.errors import StoreUnavailableError
from supervisor.core.model import Envelope, Kind, Template
from supervisor.core.supervision.scoreboard import Board
from supervisor.process.spawn import allocate
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import CandidateInfo, Leases, LeaseView
from supervisor.store.keys import Keys
from supervisor.store.queues.runs import Queues
from tests.kit.clients import Clients
from tests.kit.clock import ShiftedClock
from tests.kit.waiting import wait_until

DURATION_MS = 60_000
NONCE = "ab" * 16


class Replica:
    """Its connections, and what it learned."""

    def __init__(self, url: str, *connect: Clients, keys: Keys, **settings: Any) -> None:
        self.keys = keys
        self.clock = ShiftedClock()
        self.board: Board = allocate(slots=1, inflight=1)
        self.elector = Store.connect(
            url,
            settings=RedisSettings(**settings),
            name=f"{keys.cluster}:elector",
            timeout_s=0.75,
            clock=self.clock,
            publish=self.board.publish_endpoint,
        )
        options = {"name": f"{keys.cluster}:child", "follow": self.board, "timeout_s": 1.0, **settings}
        self.children = [clients(url, **options) for clients in connect]
        self.child = self.children[0]
        self.leases, self.queues = Leases(keys), Queues(keys)
        self.floor = 0

    def campaign(self, mode: str = "cold", nonce: str = NONCE) -> LeaseView:
        """Win the lease, whoever held it."""
        view = self.leases_view()
        call = self.leases.campaign(
            replica="a",
            nonce=nonce,
            duration_ms=DURATION_MS,
            floor=self.floor,
            mode="expired" if view.holder else "cold",
            observed_epoch=view.epoch,
            observed_seq=view.seq,
            info=CandidateInfo(replica="a", host="h", pid=1, version="1"),
        )
        won = self.patiently(call)
        assert won.is_ours, won
        self.floor = max(self.floor, won.epoch)
        return won

    def leases_view(self) -> LeaseView:
        """Read the record, as often as it takes."""
        return self.patiently(self.leases.view())

    def renew(self, term: LeaseView) -> LeaseView:
        """Renew, as often as it takes."""
        return self.patiently(self.leases.renew(Term(term.epoch, NONCE, 0), duration_ms=DURATION_MS))

    def patiently(self, call: Call[Any]) -> Any:
        """Return the elector's answer: it tries again, as long as trying again may help."""
        return wait_until(lambda: attempt(self.elector, call), what=f"an answer to {call.script}")

    def enqueue_call(self, run_id: str) -> Call[Any]:
        """Return a call that writes many keys."""
        template = Template(job="tests.noop", kind=Kind.ASYNC)
        return self.queues.enqueue(nonce=run_id, envelopes=[Envelope(id=run_id, template=template)])

    def enqueue(self, run_id: str) -> None:
        """Enqueue by each child, as often as it takes."""
        for number, child in enumerate(self.children):
            call = self.enqueue_call(f"{run_id}{number}")
            assert wait_until(lambda child=child, call=call: attempt(child, call), what="the child to enqueue")
            assert child.where == self.elector.where

    def close(self) -> None:
        """Drop the elector's connections."""
        self.elector.close()


def attempt(store: Any, call: Call[Any]) -> Any:
    """Return the answer, or None when it is worth another try."""
    try:
        return store.run(call)
    except StoreUnavailableError:
        return None
