"""Broken variants of the program, each of which the simulation must catch. If it does not, it proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

from supervisor.core import lease
from supervisor.roles.agent import elector
from supervisor.roles.agent.elector import Elector
from supervisor.roles.scheduler import catalogue, planner
from supervisor.store import scripts
from tests.simulation.scenario import Outcome, run

Mutation = Callable[[], Any]  # returns a context manager


def lua(path: str, before: str, after: str) -> Mutation:
    """Replace text in one Lua file."""

    @contextmanager
    def mutated() -> Iterator[None]:
        read = scripts._read

        def wrong(name: str) -> str:
            source = read(name)
            if name == path:
                assert before in source, f"{path} has changed: the mutation does not apply"
                source = source.replace(before, after)
            return source

        with patch.object(scripts, "_read", wrong):
            scripts.script.cache_clear()
            yield
        scripts.script.cache_clear()

    return mutated


def python(owner: object, name: str, wrong: object) -> Mutation:
    """Replace one attribute."""
    return lambda: patch.object(owner, name, wrong)


def _granted_at_reply(**known: Any) -> Any:
    # A second is what a slow reply takes; anchoring at the reply adds it to the trust.
    return lease.granted(**{**known, "asked_at_ns": known["asked_at_ns"] + known["margin_ns"] + 1000 * lease.MS})


def _load_from_now(self: catalogue.Catalogue, stored: Any) -> Any:
    result = _LOAD(self, stored)
    for known in self._known.values():
        known.mark_ms += 4000
    self.plan(list(self._known))
    return result


def _advance_without_answer(self: planner.Scheduler, term: Any, items: Any) -> Any:
    # Believes that a batch arrived as soon as it was sent once, and never sends it again.
    for item in items:
        self._catalogue._known[item.schedule].mark_ms = item.new_mark_ms
    with suppress(planner.StoreUnavailableError):
        yield planner.Ask(self._schedules.fire(epoch=term.epoch, nonce=term.nonce, items=items), planner.ASK_TIMEOUT_NS)
    self._catalogue.plan([item.schedule for item in items])
    return [], self._clock.wall_ms()


def _never_again(self: Elector, view: Any) -> None:
    _LOSE(self, view)
    self._cool_until_ns = self._at.now() + 10**18


_LOAD = catalogue.Catalogue.load
_LOSE = Elector._lose

MUTANTS: dict[str, Mutation] = {
    "fire does not check the term": lua(
        "lib/term.lua", "if nonce ~= '' and now[1] == epoch and now[2] == nonce then", "if true then"
    ),
    "fire compares the epoch alone, of any term": lua(
        "lib/term.lua", "now[1] == epoch and now[2] == nonce", "now[1] ~= ''"
    ),
    "fire does not compare the watermark": lua(
        "fire.lua",
        "if mark ~= ARGV[i + 2] or tonumber(nominal) <= tonumber(mark) or tonumber(new_mark) <= tonumber(mark) then",
        "if false then",
    ),
    "fire lets any clock push the watermark": lua("fire.lua", "> now + limit then", "> now + limit + 1e9 then"),
    "campaign does not compare what was observed": lua(
        "lease_campaign.lua", "mode == 'expired' and r[1] == ARGV[6] and r[4] == ARGV[7]", "mode == 'expired'"
    ),
    "campaign grants to anyone": lua("lease_campaign.lua", "if not reason then", "if false then"),
    "epochs come from the clock alone": lua("lease_campaign.lua", "math.max(highest + 1, now)", "now % 7"),
    "trust counts from the reply": python(elector, "granted", _granted_at_reply),
    "a new leader skips what was due before it": python(catalogue.Catalogue, "load", _load_from_now),
    "a batch is not sent again when its answer is lost": python(planner.Scheduler, "_fire", _advance_without_answer),
    "a replica that lost once never contends again": python(Elector, "_lose", _never_again),
    "release does not compare the term": lua(
        "lease_release.lua", "if r[1] ~= ARGV[1] or r[2] ~= ARGV[2] then", "if false then"
    ),
    "renew extends anybody's term": lua(
        "lease_renew.lua", "if r[1] ~= ARGV[1] or r[2] ~= ARGV[2] then", "if false then"
    ),
    "a follower waits for ever": python(lease, "SLACK_NS", 10**15),
}
FAST = (
    "fire does not compare the watermark",
    "fire lets any clock push the watermark",
    "campaign does not compare what was observed",
    "trust counts from the reply",
)


def first_caught(name: str, *, seeds: int) -> Outcome | None:
    """Return the first world that shows the mutant to be broken."""
    with MUTANTS[name]():
        for seed in range(seeds):
            outcome = run(seed)
            if outcome.problems:
                return outcome
    return None
