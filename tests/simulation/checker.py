"""What must be true of every simulated world, judged from what Redis recorded and from who trusted what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

from supervisor.core.model import ScheduleDef
from supervisor.core.schedules.trigger_kinds import Trigger
from supervisor.core.schedules.triggers import trigger_of
from supervisor.core.units import MILLISECOND_NS
from supervisor.store.queues.runs import Queues
from supervisor.store.schedules.fire import LogEntry
from supervisor.store.wire.fire import FireCode
from supervisor.testing.replica import Replica, Trust
from supervisor.testing.world import World
from tests.simulation.faults import Profile
from tests.simulation.worker import Worker

EARLY_MS_MAX = 500
BEHIND_MS_MAX = 3000  # how late the newest decision may be at the end of a calm stretch
COUNT_MAX = 1_000_000
HAND_OVER_NS_MAX = 200 * MILLISECOND_NS  # an order of candidates, 15 ms apart, and two calls
LATE_BY_NATURE = {"spread", "waiting"}  # one has jitter, the other waits for runs to end


def problems(
    world: World,
    replicas: Sequence[Replica],
    profile: Profile,
    definitions: Sequence[ScheduleDef],
    worker: Worker,
) -> list[str]:
    """Return every broken promise, in words; empty when all were kept."""
    decisions = world.server.decisions
    found = [*_end(world, replicas, definitions), *_newest_term_only(world), *_own_epochs_grow(world)]
    found += _hand_overs(world)
    if profile.keeps_data:
        found += [*_fired_once(decisions), *_no_gaps(world, decisions, definitions)]
        found += [*_all_enqueued(world, decisions, worker), *_over_is_over(world)]
    if profile.keeps_data or not profile.kinds & {"server_step", "rolled_back"}:
        found += _epochs_grow(decisions)
    if not profile.kinds & {"server_step", "rolled_back"}:  # a lost renewal is nothing that a follower could know of
        found += _one_trusted(world, replicas, profile)
    if profile.has_steady_server:
        found += _never_early(decisions)
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
        if d.nominal_ms - d.at_ms > EARLY_MS_MAX and d.code is not FireCode.MISSED
    ]


def _epochs_grow(decisions: Sequence[LogEntry]) -> list[str]:
    return [
        f"a decision of epoch {late.epoch} was accepted after one of {early.epoch}"
        for early, late in pairwise(decisions)
        if late.epoch < early.epoch
    ]


def _own_epochs_grow(world: World) -> list[str]:
    """What a replica remembers, no loss of data takes from it: each term it wins is later than every one before."""
    found, newest, blank, is_lost = [], dict[str, int](), set[str](), False
    for told in world.history:
        if told.who == "server" and told.event in {"emptied", "rolled_back"}:
            is_lost = True
            newest = {who: epoch for who, epoch in newest.items() if who not in blank}
        if told.event == "booted":  # a tree that starts remembers nothing, and after a loss Redis no more
            blank.add(f"{told.who}/elector")
            if is_lost:
                newest.pop(f"{told.who}/elector", None)
        elif told.event != "election_unanswered":
            blank.discard(told.who)
        if told.event in {"leader_acquired", "leader_promoted"} and told.fields.get("reason") != "reclaimed":
            epoch = told.fields["epoch"]
            is_new = told.event == "leader_promoted" or told.fields.get("reason") == "granted"
            if is_new and epoch <= newest.get(told.who, 0):
                found.append(f"{told.who} won epoch {epoch} after {newest[told.who]}")
            newest[told.who] = max(epoch, newest.get(told.who, 0))
    return found


def _hand_overs(world: World) -> list[str]:
    """A holder hands over only if its own term was asked to; in the calm stretch the next leads within milliseconds.

    What was asked for before may be obeyed in the calm stretch, while the scheduler of every other keeps dying.
    """
    found, asked, asked_in_calm = [], set[int](), set[int]()
    is_calm, released_ns = False, 0
    for told in world.history:
        is_calm = is_calm or told.event == "calm"
        if told.event == "asks_to_resign":
            asked.add(told.fields["epoch"])
            asked_in_calm |= {told.fields["epoch"]} if is_calm else set()
        elif told.event == "leader_released" and told.fields["reason"] == "requested":
            if told.fields["epoch"] not in asked:
                found.append(f"{told.who} handed epoch {told.fields['epoch']} over, which nobody asked it to")
            is_prompt = told.fields["epoch"] in asked_in_calm and told.fields["answer"] == "released"
            released_ns = told.at_ns if is_prompt else 0
        elif told.event == "leader_acquired" and released_ns:
            if told.at_ns - released_ns > HAND_OVER_NS_MAX:
                found.append(f"{told.who} led {(told.at_ns - released_ns) / 1e6:.0f} ms after the release")
            released_ns = 0
    return found


def _over_is_over(world: World) -> list[str]:
    """No decision of a term is accepted after its holder said that it lost it or gave it back."""
    server = world.server
    over = {
        told.fields["epoch"]: told.at_ns for told in world.history if told.event in {"leader_lost", "leader_released"}
    }
    return [
        f"{d.schedule}@{d.nominal_ms} was accepted from epoch {d.epoch} after its holder had given it up"
        for d, at_ns in zip(server.decisions, server.moments_ns, strict=True)
        if at_ns > over.get(d.epoch, at_ns)
    ]


def _no_gaps(world: World, decisions: Sequence[LogEntry], definitions: Sequence[ScheduleDef]) -> list[str]:
    """Every due time up to the watermark was decided once, or counted as missed, as the policy of its schedule says."""
    found = []
    by_schedule = defaultdict(list)
    for decision in decisions:
        by_schedule[decision.schedule].append(decision)
    marks = world.server.store.fields(world.server.keys.schedule_mark)
    for definition in definitions:
        name, trigger = definition.id, trigger_of(definition)
        if name.encode() not in marks or name not in world.server.created_ms:
            continue
        created_ms, mark_ms = world.server.created_ms[name], int(marks[name.encode()])
        accounted, missed, off = _account(by_schedule[name], trigger)
        owed = trigger.count(created_ms, mark_ms, COUNT_MAX)
        found += [f"{name}@{nominal} is no due time" for nominal in off]
        if owed != accounted + missed:
            found.append(f"{name}: {owed} due in ({created_ms}, {mark_ms}], {accounted} decided and {missed} missed")
        if definition.missed == "all" and missed:
            found.append(f"{name} makes up for everything, and missed {missed}")
    return found


def _account(entries: Sequence[LogEntry], trigger: Trigger) -> tuple[int, int, list[int]]:
    """Return how many due times were decided and how many missed, and what was decided without being due."""
    accounted = missed = 0
    waiting: set[int] = set()
    off = []
    for entry in entries:
        if entry.nominal_ms in waiting:  # it was decided when it began to wait
            waiting.discard(entry.nominal_ms)
            continue
        missed += entry.missed
        if entry.code is FireCode.MISSED:
            continue
        accounted += 1
        if entry.code is FireCode.BUFFERED:
            waiting.add(entry.nominal_ms)
        if trigger.latest_ms(entry.nominal_ms - 1, entry.nominal_ms) != entry.nominal_ms:
            off.append(entry.nominal_ms)
    return accounted, missed, off


def _all_enqueued(world: World, decisions: Sequence[LogEntry], worker: Worker) -> list[str]:
    queues = Queues(world.server.keys)
    runs = {d.run_id for d in decisions if d.code is FireCode.FIRED} - worker.seen
    lost = [run for run in runs if world.server.store.run(queues.show(run)) is None]
    broken = [
        line for queue in world.server.store.run(queues.names()) for line in world.server.store.run(queues.fsck(queue))
    ]
    return [*(f"{run} was fired and is in no queue" for run in sorted(lost)), *broken]


def _knew(world: World, late: Trust, epoch: int) -> bool:
    """Whether the replica that trusts ``late`` had seen that another one holds ``epoch``."""
    name = late.replica.partition(".")[0]
    is_known = False
    for told in world.history:
        if told.at_ns > late.from_ns:
            break
        if (told.who == name and told.event == "booted") or (told.who == f"{name}/elector" and told.event == "revived"):
            is_known = False  # a process that starts remembers nothing but the term it holds
        elif told.who == f"{name}/elector" and told.event == "standby":
            is_known = is_known or told.fields["epoch"] == epoch
        elif told.event == "leader_released" and told.fields["epoch"] == epoch:
            return False  # its holder said that it is over
    return is_known


def _one_trusted(world: World, replicas: Sequence[Replica], profile: Profile) -> list[str]:
    """At no moment do two replicas trust a term; where Redis lost data, unless the later one never heard of it."""
    trusts = sorted((t for replica in replicas for t in replica.trusts), key=lambda t: t.from_ns)
    found = []
    for index, early in enumerate(trusts):
        for late in trusts[index + 1 :]:
            if late.from_ns >= early.until_ns:
                break
            if late.replica != early.replica and (profile.keeps_data or _knew(world, late, early.epoch)):
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
    marks = world.server.store.fields(world.server.keys.schedule_mark)
    until_ms = world.server_ms() - BEHIND_MS_MAX
    for definition in definitions:
        mark_ms = int(marks.get(definition.id.encode(), b"0"))
        due_ms = trigger_of(definition).latest_ms(mark_ms, until_ms - (definition.jitter_ms or 0))
        if due_ms is not None:
            found.append(f"{definition.id} is behind: {due_ms} was due, the watermark is {mark_ms}")
    return found


def _undisturbed(world: World, decisions: Sequence[LogEntry]) -> list[str]:
    """Without any fault nothing is missed, nothing is late, and the first leader stays."""
    found = [f"{d.schedule}@{d.nominal_ms} missed {d.missed} in a calm world" for d in decisions if d.missed]
    found += [
        f"{d.schedule}@{d.nominal_ms} was {d.at_ms - d.nominal_ms} ms late"
        for d in decisions
        if d.at_ms - d.nominal_ms > 250 and d.schedule not in LATE_BY_NATURE
    ]
    terms = [told for told in world.history if told.event == "leader_acquired"]
    # The second is the hand-over that every world asks for in its calm stretch.
    return found + ([f"{len(terms)} terms in a calm world"] if len(terms) != 2 else [])
