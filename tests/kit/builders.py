"""Short words for what store tests say often. Every run goes to the queue ``default`` unless told."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec.structs import replace

from supervisor.core.model import Envelope, Kind, Outcome, ScheduleDef, Template
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import CandidateInfo, Leases, LeaseView
from supervisor.store.queues.runs import Queues
from supervisor.store.queues.sessions import Sessions
from supervisor.store.schedules.definitions import Change, Definitions
from supervisor.store.schedules.fire import Schedules
from supervisor.store.schedules.reads import Views
from supervisor.store.wire.definition import policy_text
from supervisor.store.wire.envelope import pack
from supervisor.store.wire.fire import FireItem
from supervisor.store.wire.poll import Ack, FetchedRun, TurnReply, fence_parts
from tests.kit.servers import Server

NONCE = "ab" * 16
POLICIES = ("overlap", "max_running", "buffer_limit", "cancel_grace_ms", "max_runs")


def envelope(run_id: str, **template: Any) -> Envelope:
    """Return a run of a job; keyword arguments go to its template."""
    return Envelope(id=run_id, template=Template(**{"job": "tests.noop", "kind": Kind.ASYNC} | template))


def acknowledged(run: FetchedRun, outcome: Outcome = Outcome.OK) -> Ack:
    """Return what a worker says of a run that it was given, once it has ended."""
    return Ack(
        run_id=run.envelope.id,
        queue=run.queue,
        attempt=run.attempt,
        fetched_ms=run.fetched_ms,
        outcome=outcome,
        schedule=run.envelope.schedule,
    )


class StoreCalls:
    """One client of one server, and all calls."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.store: Store = server.store()
        self.keys = server.keys
        self.leases = Leases(server.keys)
        self.queues = Queues(server.keys)
        self.schedules = Schedules(server.keys)
        self.sessions = Sessions(server.keys)
        self.raw = server.raw()
        self.sequences: dict[str, int] = {}

    def run(self, call: Any) -> Any:
        return self.store.run(call)

    def twice(self, call: Any) -> tuple[Any, Any]:
        """Run a call twice, as a client does whose first reply was lost."""
        return self.store.run(call), self.store.run(call)

    def rung(self, *bells: str) -> str | None:
        """Take a token of the first bell that has one. A wait for it ends by a margin, short for a busy machine."""
        return next((bell for bell in bells if self.raw.lpop(bell)), None)

    # sessions and turns

    def open(self, *names: str) -> None:
        for name in names:
            assert self.run(self.sessions.open(name, {"pid": 1}))

    def enqueue(self, *envelopes: Envelope, **arguments: Any) -> list[bool]:
        call = self.queues.enqueue(nonce=uuid.uuid4().hex, envelopes=envelopes, **arguments)
        return [enqueued.is_new for enqueued in self.run(call)]

    def turn_call(self, session: str, **arguments: Any) -> Any:
        """Return a turn. An acknowledgement that does not say when its execution began means the one on record."""
        arguments["acks"] = [self._told(ack) for ack in arguments.get("acks", [])]
        self.sequences[session] = arguments.pop("seq", self.sequences.get(session, 0) + 1)
        defaults = {"kind": Kind.ASYNC, "queues": ["default"], "want": 0, "want_suspect": False, "acks": []}
        return self.queues.turn(session=session, seq=self.sequences[session], **defaults | arguments)

    def _told(self, ack: Ack) -> Ack:
        known = ack.fetched_ms or self.fetched_ms(ack.run_id, ack.queue)
        return msgspec.structs.replace(ack, fetched_ms=known)

    def fetched_ms(self, run_id: str, queue: str = "default") -> int:
        """Return when the execution of a run that is on record was fetched; 0: there is none."""
        return fence_parts(self.raw.hget(self.keys.queue(queue).run, run_id) or b"")[2]

    def turn(self, session: str, **arguments: Any) -> TurnReply:
        return self.run(self.turn_call(session, **arguments))

    def fetch(self, session: str, want: int = 10, **arguments: Any) -> list[str]:
        return [run.envelope.id for run in self.turn(session, want=want, **arguments).runs]

    def ack(
        self, session: str, run_id: str, outcome: Outcome = Outcome.OK, attempt: int = 1, **fields: Any
    ) -> TurnReply:
        ack = Ack(**{"run_id": run_id, "queue": "default", "attempt": attempt, "outcome": outcome} | fields)
        return self.turn(session, acks=[ack])

    def cancel(self, run_id: str, queue: str = "default") -> None:
        """Cancel a run as a person would: its data goes, its id stays where it is."""
        self.raw.hdel(self.keys.queue(queue).data, run_id)

    def make_due(self, run_id: str, queue: str = "default") -> None:
        """Let the delay of a run have passed."""
        assert self.raw.zadd(self.keys.queue(queue).later, {run_id: 1}, xx=True, ch=True)

    def state(self, run_id: str) -> str:
        view = self.run(self.queues.show(run_id))
        return view.state if view else "unknown"

    def fsck(self, queue: str = "default") -> list[str]:
        return self.run(self.queues.fsck(queue))

    # terms and schedules

    def campaign_call(self, replica: str = "a", nonce: str = NONCE, **arguments: Any) -> Any:
        defaults = {"duration_ms": 5000, "floor": 0, "mode": "cold", "observed_epoch": 0, "observed_seq": 0}
        info = arguments.pop("info", CandidateInfo(replica=replica, host="h", pid=7, version="1"))
        return self.leases.campaign(replica=replica, nonce=nonce, info=info, **defaults | arguments)

    def lead(self, replica: str = "a", nonce: str = NONCE, **arguments: Any) -> LeaseView:
        view = self.run(self.campaign_call(replica, nonce, **arguments))
        assert view.is_ours, view
        return view

    def declare_call(self, term: LeaseView, *definitions: ScheduleDef, digest: str = "d1") -> Any:
        """Bring in a page of a configuration. What it does not name stays; see ``remove_call``."""
        changes = [Change(definition=each) for each in definitions]
        return Definitions(self.schedules.keys).page(term, digest=digest, changes=changes, wall_ms=1)

    def remove_call(self, term: LeaseView, *ids: str) -> Any:
        """Take out what a configuration no longer names."""
        return Definitions(self.schedules.keys).remove(term, ids=ids)

    def planned(self) -> None:
        """Stand in for the leader: it looked at every schedule, and planned it for long ago."""
        ids = self.raw.hkeys(self.keys.schedule_def)
        self.raw.zadd(self.keys.schedule_next, dict.fromkeys(ids, 1))

    def stored(self) -> dict[str, Any]:
        found, cursor = {}, None
        while cursor != "0":
            page = self.run(Views(self.keys).browse(cursor or "0"))
            cursor = page.cursor
            found |= {
                each.id: SimpleNamespace(
                    definition=each.definition(), revision=each.revision, mark_ms=each.mark_ms, next_ms=each.next_ms
                )
                for each in page.items
            }
        return found

    def item(self, schedule: str, /, *, ahead_ms: int = 0, **fields: Any) -> FireItem:
        """Return the item that a planner would send for ``schedule``, due ``ahead_ms`` from now by Redis' time."""
        stored = self.stored()[schedule]
        nominal = max(stored.mark_ms + 1, self.run(self.leases.view()).now_ms + ahead_ms)
        definition = stored.definition
        policy = {name: fields.pop(name) for name in ("wait", "keep_ms") if name in fields}
        changed = {name: fields.pop(name) for name in POLICIES if name in fields}
        nominal = fields.get("nominal_ms", nominal)
        run = Envelope(id=f"{schedule}@{nominal}", template=definition.template, schedule=schedule, nominal_ms=nominal)
        defaults = {
            "schedule": schedule,
            "revision": stored.revision,
            "mark_ms": stored.mark_ms,
            "nominal_ms": nominal,
            "new_mark_ms": nominal,
            "next_ms": nominal + 1000,
            "run": pack(fields.pop("envelope", run)),
            "policy": policy_text(replace(definition, **changed), **policy),
        }
        return FireItem(**defaults | fields)

    def fire_call(self, term: LeaseView, *items: FireItem, **arguments: Any) -> Any:
        return self.schedules.fire(term, items=items, **arguments)


def schedule(schedule_id: str, **fields: Any) -> ScheduleDef:
    """Return a schedule that is due each second."""
    template = fields.pop("template", Template(job="tests.noop", kind=Kind.ASYNC))
    return ScheduleDef(**{"id": schedule_id, "template": template, "every_ms": 1000} | fields)
