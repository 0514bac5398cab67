"""What must be true of every simulated world, judged from what Redis recorded and from who trusted what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

from supervisor.core.model import ScheduleDef
from supervisor.core.triggers import trigger_of
from supervisor.store.queues import Queues
from supervisor.store.schedules import FireCode, LogEntry
from supervisor.testing.replica import Replica
from supervisor.testing.world import World
from tests.simulation.chaos import Profile

EARLY_MS_MAX = 500
BEHIND_MS_MAX = 3000  # how late the newest decision may be at the end of a calm stretch
COUNT_MAX = 1_000_000


def problems(
    world: World, replicas: Sequence[Replica], profile: Profile, definitions: Sequence[ScheduleDef]
) -> list[str]:
    """Return every broken promise, in words; empty when all were kept."""
    decisions = world.server.decisions
    found = [*_end(world, replicas, definitions), *_newest_term_only(world)]
    if profile.keeps_data:
        found += [*_fired_once(decisions), *_no_gaps(world, decisions, definitions), *_all_enqueued(world, decisions)]
    if profile.keeps_data or "server_step" not in profile.kinds:
        found += _epochs_grow(decisions)
    if profile.has_steady_server:
        found += [*_one_trusted(replicas), *_never_early(decisions)]
    if not profile.kinds:
        found += _undisturbed(world, decisions)
    return found


def _fired_once(decisions: Sequence[LogEntry]) -> list[str]:
    fired = Counter((d.schedule, d.nominal_ms) for d in decisions if d.code is FireCode.FIRED)
    return [f"{schedule}@{nominal} fired {times} times" for (schedule, nominal), times in fired.items() if times > 1]


def _newest_term_only(world: World) -> list[str]:
    """A fire is accepted from the term that stands in Redis at that moment, and from no other."""
    return [
        f"{d.schedule}@{d.nominal_ms} was accepted from epoch {d.epoch} while epoch {epoch or 'none'} stood"
        for d, epoch in zip(world.server.decisions, world.server.terms, strict=True)
        if d.epoch != epoch
    ]


def _never_early(decisions: Sequence[LogEntry]) -> list[str]:
    """No wall clock makes anything fire before its time."""
    return [
        f"{d.schedule}@{d.nominal_ms} fired {d.nominal_ms - d.at_ms} ms early"
        for d in decisions
        if d.nominal_ms - d.at_ms > EARLY_MS_MAX
    ]


def _epochs_grow(decisions: Sequence[LogEntry]) -> list[str]:
    return [
        f"a decision of epoch {late.epoch} was accepted after one of {early.epoch}"
        for early, late in pairwise(decisions)
        if late.epoch < early.epoch
    ]


def _no_gaps(world: World, decisions: Sequence[LogEntry], definitions: Sequence[ScheduleDef]) -> list[str]:
    """Each decision accounts for every due time since the one before: fired, or counted as missed by it."""
    found = []
    by_schedule = defaultdict(list)
    for decision in decisions:
        by_schedule[decision.schedule].append(decision)
    for definition in definitions:
        trigger = trigger_of(definition)
        mark_ms = world.server.created_ms.get(definition.id, 0)
        for decision in by_schedule[definition.id]:
            owed = trigger.count(mark_ms, decision.nominal_ms, COUNT_MAX)
            if owed != decision.missed + 1:
                found.append(
                    f"{definition.id}: {owed} due in ({mark_ms}, {decision.nominal_ms}], "
                    f"but the decision there accounts for {decision.missed + 1}"
                )
            mark_ms = decision.nominal_ms
    return found


def _all_enqueued(world: World, decisions: Sequence[LogEntry]) -> list[str]:
    queues = Queues(world.server.keys)
    runs = {d.run_id for d in decisions if d.code is FireCode.FIRED}
    lost = [run for run in runs if world.server.store.run(queues.locate(run)) is None]
    broken = [
        line for queue in world.server.store.run(queues.names()) for line in world.server.store.run(queues.fsck(queue))
    ]
    return [*(f"{run} was fired and is in no queue" for run in sorted(lost)), *broken]


def _one_trusted(replicas: Sequence[Replica]) -> list[str]:
    """At no moment do two replicas trust a term."""
    trusts = sorted((t for replica in replicas for t in replica.trusts), key=lambda t: t.from_ns)
    found = []
    for index, early in enumerate(trusts):
        for late in trusts[index + 1 :]:
            if late.from_ns >= early.until_ns:
                break
            if late.replica != early.replica:
                found.append(
                    f"{late.replica} trusts epoch {late.epoch} from {late.from_ns / 1e9:.4f}, "
                    f"{early.replica} still trusts {early.epoch} until {early.until_ns / 1e9:.4f}"
                )
    return found


def _end(world: World, replicas: Sequence[Replica], definitions: Sequence[ScheduleDef]) -> list[str]:
    """After a calm stretch somebody leads, alone, and no schedule is behind."""
    found = []
    leading = [replica.id for replica in replicas if replica.is_leading]
    if len(leading) != 1:
        found.append(f"{len(leading)} replicas lead at the end: {', '.join(leading) or 'none'}")
    newest: dict[str, int] = {}
    for decision in world.server.decisions:
        newest[decision.schedule] = decision.nominal_ms
    until_ms = world.server_ms() - BEHIND_MS_MAX
    for definition in definitions:
        created_ms = world.server.created_ms.get(definition.id, until_ms)
        mark_ms = max(created_ms, newest.get(definition.id, 0))
        due_ms = trigger_of(definition).latest_ms(mark_ms, until_ms)
        if due_ms is not None:
            found.append(f"{definition.id} is behind: {due_ms} was due, the newest decision is {mark_ms}")
    return found


def _undisturbed(world: World, decisions: Sequence[LogEntry]) -> list[str]:
    """Without any fault nothing is missed, nothing is late, and the first leader stays."""
    found = [f"{d.schedule}@{d.nominal_ms} missed {d.missed} in a calm world" for d in decisions if d.missed]
    found += [
        f"{d.schedule}@{d.nominal_ms} was {d.at_ms - d.nominal_ms} ms late"
        for d in decisions
        if d.at_ms - d.nominal_ms > 250
    ]
    terms = [told for told in world.history if told.event == "leader_acquired"]
    return found + ([f"{len(terms)} terms in a calm world"] if len(terms) != 1 else [])
