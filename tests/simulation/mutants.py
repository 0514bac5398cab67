"""Broken variants of the program, each of which the simulation must catch. If it does not, it proves nothing."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

from supervisor.core.effects import RunScript, Sleep
from supervisor.core.election import lease
from supervisor.core.errors import StoreUnavailableError
from supervisor.core.schedules.catchup import owed
from supervisor.core.units import MILLISECOND_NS
from supervisor.roles.agent.election import elector
from supervisor.roles.agent.election.elector import Elector
from supervisor.roles.agent.election.held_term import Resignation
from supervisor.roles.agent.election.memory import ElectionMemory
from supervisor.roles.scheduler import fire_items
from supervisor.roles.scheduler.fenced_client import ASK_TIMEOUT_NS, FencedClient
from supervisor.roles.scheduler.schedule_cache import Watermarks
from supervisor.roles.scheduler.scheduler import Scheduler
from supervisor.store import scripts
from supervisor.store.wire.fire import FireCode, FireReply, FireResult
from tests.simulation.scenario import Outcome, run

Mutation = Callable[[], Any]  # returns a context manager


def lua(path: str, before: str | re.Pattern[str], after: str) -> Mutation:
    """Replace the first place in one Lua file that reads as ``before``, a text or a pattern."""
    pattern = before if isinstance(before, re.Pattern) else re.compile(re.escape(before))

    @contextmanager
    def mutated() -> Iterator[None]:
        read = scripts._read
        mutant = path.removesuffix(".lua")
        source, count = pattern.subn(lambda _: after, read(mutant), count=1)
        assert count, f"{path} has changed: the mutation does not apply"

        with patch.object(scripts, "_read", lambda name: source if name == mutant else read(name)):
            scripts.script.cache_clear()
            yield
        scripts.script.cache_clear()

    return mutated


def python(owner: object, name: str, wrong: object) -> Mutation:
    """Replace one attribute."""
    return lambda: patch.object(owner, name, wrong)


def _granted_at_reply(**known: Any) -> Any:
    # A second is what a slow reply takes; anchoring at the reply adds it to the trust.
    return lease.granted(**{**known, "asked_at_ns": known["asked_at_ns"] + known["margin_ns"] + 1000 * MILLISECOND_NS})


def _at_once(**known: Any) -> Any:
    return _OBSERVE(**{**known, "remaining_ms": 1, "duration_ms": 1})


def _nothing_missed(*args: Any, **known: Any) -> Any:
    found = _OWED(*args, **known)
    return found if found is None else dataclasses.replace(found, missed={})


def _forgotten(self: FencedClient, term: Any, call: Any, *known: Any) -> Any:
    # Believes that a batch arrived as soon as it was sent once, whatever Redis says later.
    if call.script != "fire":
        return (yield from _ASK(self, term, call, *known))
    yield from self.await_trust(term)
    marks = [int(str(line).split(" ")[4]) for line in call.args[5::3]]  # line, shape and data of each item
    with suppress(StoreUnavailableError):
        yield RunScript(call, ASK_TIMEOUT_NS)
    return FireReply([FireResult(FireCode.FIRED, mark) for mark in marks], self.clock.wall_ms())


@contextmanager
def _forgetting() -> Iterator[None]:
    with (
        patch.object(FencedClient, "ask", _forgotten),
        patch.object(Scheduler, "reconcile_ns", 10**18),  # which heals it within seconds, as do audits
        patch.object(Scheduler, "audit_ns", 10**18),
    ):
        yield


def _never_again(self: Elector, view: Any) -> None:
    _LOSE(self, view)
    self._cool_until_ns = self._glance_due_ns = self._at.now() + 10**18


def _released_first(self: Resignation, reason: str, *, prefer: str = "") -> Any:
    at, term = self._at, self._held.term
    self._memory.move(lease.ElectorEvent.RESIGN)
    yield from self._release(term, reason, prefer)
    yield Sleep(at.now() + 1000 * MILLISECOND_NS)
    self._held.drop()
    self._follower.forget()
    self._memory.move(lease.ElectorEvent.RELEASED)


def _one_nonce(self: Elector, standing: Any) -> None:
    _ELECTOR(self, dataclasses.replace(standing, new_nonce=lambda: "7" * 32))


def _undisputed(self: ElectionMemory, view: Any) -> None:
    # Either wait alone is enough in nearly every world.
    _SAW(self, view)
    self.disputed_until_ns = self.wait_until_ns = 0


@contextmanager
def _as_if_held() -> Iterator[None]:
    seed = Watermarks._seed

    def wrong(self: Watermarks, definition: Any) -> Any:
        self._client.board.header.held_until_ms = 1 << 60
        return seed(self, definition)

    with patch.object(Watermarks, "_seed", wrong), patch.object(ElectionMemory, "_wait_ns", lambda _self: 0):
        yield


@contextmanager
def _as_if_sole() -> Iterator[None]:
    """Break both what keeps it: the memory of who led since, and the end of the lease that it held."""

    def wrong(self: Watermarks, term: Any) -> None:
        self._is_sole, self._epoch = self._epoch > 0, term.epoch

    with _as_if_held(), patch.object(Watermarks, "begin", wrong):
        yield


def _forgetful(self: ElectionMemory) -> None:
    epoch = self._at.board.term().epoch
    self.lease = lease.Memory(floor=epoch, epoch=epoch)
    self._at.board.header.answered_ms = 0


def _unnoticed(self: Watermarks, schedule: str, mark_ms: int) -> None:
    self._marks[schedule] = mark_ms


_OBSERVE = lease.Observation.of
_SAW = ElectionMemory.saw
_OWED = owed
_ASK = FencedClient.ask
_LOSE = Elector._lose
_ELECTOR = Elector.__init__

MUTANTS: dict[str, Mutation] = {
    # The fence and the watermark.
    "fire does not check the term": lua(
        "lib/term.lua", "if nonce == '' or current[1] ~= epoch or current[2] ~= nonce then", "if false then"
    ),
    "fire compares the epoch alone, of any term": lua(
        "lib/term.lua", "current[1] ~= epoch or current[2] ~= nonce", "not current[1]"
    ),
    "fire does not compare the watermark": lua(
        "lib/fire_decide.lua",
        "if marks[n] ~= item.mark or nominal <= mark or new_mark <= mark then",
        "if false then",
    ),
    "fire lets any clock push the watermark": lua(
        "lib/fire_schedules.lua", "now, limit = now_ms(), tonumber(skew_ms)", "now, limit = now_ms(), 1e9"
    ),
    "fire takes a plan of an older definition": lua(
        "lib/fire_decide.lua", "string.match(defs[n], '^0*(%d+)') ~= item.revision", "false"
    ),
    "fire starts what is paused": lua("lib/fire_decide.lua", "if pauses[n] and", "if false and"),
    "a pause forgets what was due before it": lua("lib/control.lua", "due_of(former) or is_behind and now", "nil"),
    "fire advances the watermark and enqueues nothing": lua(
        "lib/fire_decide.lua", "if not group.known[id] then", "if false then"
    ),
    # The lease in Redis.
    "campaign does not compare what was observed": lua(
        "lease_campaign.lua", re.compile(r"mode == 'expired' and .* then"), "mode == 'expired' then"
    ),
    "campaign grants to anyone": lua("lease_campaign.lua", "if not reason then", "if false then"),
    "campaign deposes a holder for a newcomer": lua(
        "lease_campaign.lua", "mode == 'cold' and is_watched and (natural(r[5]) or math.huge) <= now", "mode == 'cold'"
    ),
    "epochs come from the clock alone": lua(
        "lease_campaign.lua", re.compile(r"local granted = .*"), "local granted = whole(now % 7 + 1)"
    ),
    "campaign forgets the floor": lua(
        "lease_campaign.lua",
        re.compile(r"local granted = .*"),
        "local granted = whole(remembered + 1)",
    ),
    "promotion keeps the epoch": lua("lease_promote.lua", "whole(math.max(highest + 1, now))", "r[1]"),
    "promotion does not compare the term": lua(
        "lease_promote.lua", "if r[1] ~= epoch or r[2] ~= nonce then", "if false then"
    ),
    "release does not compare the term": lua(
        "lease_release.lua", "if r[1] ~= epoch or r[2] ~= nonce then", "if false then"
    ),
    "release wakes nobody": lua(
        "lease_release.lua",
        "event('released', r[1], r[3], reason, 'prefer', prefer",
        "event('left', r[1], r[3], reason, 'prefer', prefer",
    ),
    "renewal extends anybody's term": lua("lease_renew.lua", "if r[1] ~= epoch or r[2] ~= nonce then", "if false then"),
    "renewal shows no sign of life": lua("lease_renew.lua", "raise(lease, 'seq', now)", ""),
    "a request to resign is taken for any term": lua(
        "lease_request_resign.lua", "if r[1] ~= epoch or (r[2] or '') == '' then", "if (r[2] or '') == '' then"
    ),
    # Lost data.
    "a leader brings back watermarks of an earlier term": _as_if_sole,
    "a leader that lapsed before the loss takes itself for the last": _as_if_held,
    "an agent knows nothing of what its predecessor saw": python(ElectionMemory, "resumed", _forgetful),
    "a watermark that went back is not noticed": python(Watermarks, "remember", _unnoticed),
    # The replicas.
    "trust counts from the reply": python(elector, "granted", _granted_at_reply),
    "two replicas draw the same nonce": python(Elector, "__init__", _one_nonce),
    "the lease is released before the scheduler stops": python(Resignation, "resign", _released_first),
    "a loss of data ends the lost term at once": python(ElectionMemory, "saw", _undisputed),
    "a follower campaigns without having watched": python(lease.Observation, "of", _at_once),
    "a follower waits for ever": python(lease, "SLACK_NS", 10**15),
    "a replica that lost once never contends again": python(Elector, "_lose", _never_again),
    "a batch is forgotten when its answer is lost, and nobody looks again": _forgetting,
    "a new leader does not count what was missed": python(fire_items, "owed", _nothing_missed),
}
FAST = (
    "fire does not compare the watermark",
    "fire lets any clock push the watermark",
    "campaign does not compare what was observed",
    "promotion keeps the epoch",
    "release wakes nobody",
    "trust counts from the reply",
    "two replicas draw the same nonce",
)
"""Those that few worlds show, for every run of the tests."""


FOCUS: dict[str, str] = {
    "a leader brings back watermarks of an earlier term": "only orphaned resign",
    "a leader that lapsed before the loss takes itself for the last": "only emptied pause stall wall_step",
    "an agent knows nothing of what its predecessor saw": "only emptied crash_elector",
    "a watermark that went back is not noticed": "only rolled_back",
    "fire does not check the term": "pause slow stall",
    "fire compares the epoch alone, of any term": "pause slow stall",
    "fire takes a plan of an older definition": "redefine slow stall",
    "fire starts what is paused": "pause_schedule redefine slow stall",
    "a pause forgets what was due before it": "pause_schedule outage",
    "promotion does not compare the term": "series crash_scheduler repeated slow lost_reply",
    "release does not compare the term": "stop resign repeated lost_reply",
    "renewal extends anybody's term": "pause partition",
    "campaign forgets the floor": "emptied server_step",
    "a loss of data ends the lost term at once": "emptied pause",
    "epochs come from the clock alone": "crash stop",
    "promotion keeps the epoch": "crash_scheduler",
    "a request to resign is taken for any term": "resign crash",
    "a batch is forgotten when its answer is lost, and nobody looks again": "lost_request lost_reply",
    "a new leader does not count what was missed": "outage",
    "fire lets any clock push the watermark": "wall_step",
}
"""Kinds of fault that the worlds of a mutant have in any case, so that fewer worlds are needed to show it."""


def first_caught(name: str, *, seeds: int) -> Outcome | None:
    """Return the first world that is broken with the mutation, and whole without it."""
    focus = frozenset(FOCUS.get(name, "").split())
    for seed in range(seeds):
        with MUTANTS[name]():
            outcome = run(seed, focus=focus)
        if outcome.problems and not run(seed, focus=focus).problems:
            return outcome
    return None
