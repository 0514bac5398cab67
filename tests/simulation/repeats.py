"""The law of lost data: what runs again does so for want of knowledge, and says so.

A leader's knowledge is judged as of its request: no later one changes what the network delivers late, or twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.core.units import MILLISECOND_NS
from supervisor.store.schedules.fire import LogEntry
from supervisor.store.wire.fire import FireCode
from supervisor.testing.world import Told, World

SILENT_MS_ERROR = 500  # what a leader's clock may be ahead of Redis'
ANSWER_NS_MAX = 1000 * MILLISECOND_NS  # an answer is younger: later ones are given up
UNDECIDED = {FireCode.SKEWED, FireCode.HELD, FireCode.PAUSED, FireCode.REFUSED}


def repeats(world: World, flagged: list[bool], sent_ns: list[int]) -> list[str]:
    """Return what was fired twice without a loss in between, against better knowledge, or unmarked, in words."""
    server, found = world.server, []
    losses = [told for told in world.history if told.who == "server" and told.event in {"emptied", "rolled_back"}]
    last: dict[tuple[str, int], int] = {}
    marked = 0
    for index, (decision, at_ns) in enumerate(zip(server.decisions, server.moments_ns, strict=True)):
        if decision.code is not FireCode.FIRED:
            continue
        before = last.get(key := (decision.schedule, decision.nominal_ms))
        last[key] = index
        if before is None:
            continue
        between = [told for told in losses if server.moments_ns[before] <= told.at_ns <= at_ns]
        who, firer = _holder(world, decision.epoch), _holder(world, server.decisions[before].epoch)
        is_unheard = who == firer and not _was_told(world, who, decision, server.moments_ns[before], sent_ns[index])
        what = f"{decision.schedule}@{decision.nominal_ms} was fired again by {who}"
        if not between:
            found.append(f"{what}, and Redis lost nothing in between")
        elif is_unheard:
            is_older = decision.epoch <= server.decisions[before].epoch  # its term asked before it knew of the loss
            if not (flagged[index] or is_older or _begun(world, who, server.moments_ns[before], at_ns)):
                found.append(f"{what}, which never had the answer to the one before, without the flag")
        elif all(told.event == "emptied" for told in between) and _knew(world, who, server.moments_ns[before], between):
            found.append(f"{what}, which had an answer of Redis after it was fired first")
        elif all(told.event == "emptied" for told in between) and not (
            _was_silent(world, server.decisions[before], between[0], at_ns, firer)
            or not _was_told(world, firer, decision, 0, at_ns)
            or (flagged[index] and _led_before_due(world, who, server.decisions[before]))
        ):
            found.append(f"{what}, and Redis had not fallen silent before for whoever wrote its watermark back")
        elif (
            who == firer
            and _was_told(world, who, decision, server.moments_ns[before], sent_ns[index])
            and not _begun(world, who, server.moments_ns[before], at_ns)
        ):
            # A leader that is killed or cut off before the answer does not know that there is something to count.
            marked += flagged[index] and _was_told(world, who, decision, at_ns, world.now_ns)
            if not flagged[index]:
                found.append(f"{what}, which remembered it, without the flag")
    counted = sum(told.fields["count"] for told in world.history if told.event == "fires_doubtful")
    return found + ([f"{marked} marked repeats, {counted} counted"] if counted < marked else [])


def _holder(world: World, epoch: int) -> str:
    for told in world.history:
        if told.event in {"leader_acquired", "leader_promoted"} and told.fields["epoch"] == epoch:
            return told.who.partition("/")[0]
    return ""


def _knew(world: World, who: str, fired_ns: int, losses: list[Told]) -> bool:
    """Whether the tree of ``who`` had an answer about the lease between a fire and the first loss after it.

    An agent that replaces one that died knows it from the board.
    """
    is_known = False
    for told in world.history:
        if told.event == "booted" and told.who.partition("/")[0] == who:
            is_known = False
        is_answer = told.event == "election_answer" and told.who == f"{who}/elector"
        is_known = is_known or (is_answer and fired_ns + ANSWER_NS_MAX < told.at_ns < losses[0].at_ns)
    return is_known


def _began_ms(world: World) -> int:
    """Redis' time at which the world began."""
    return world.server_ms() - world.now_ns // MILLISECOND_NS


def _was_silent(world: World, decision: LogEntry, loss: Told, at_ns: int, firer: str) -> bool:
    """Whether a replica that wrote marks back after ``loss`` had no answer when ``decision`` was due.

    Or, where ``firer`` is another, when it was made: a replica remembers what it decided itself. One that was cut off for
    as long as another's marks were there still believes what it believed of the loss before them.
    """
    silent_ns: dict[str, int] = {}  # by replica: first question without an answer since its last answer
    lost_ns: dict[str, int] = {}  # by replica: since when the lost data were silent, as it had to believe
    unrestored_ns: dict[str, int] = {}  # the same of any loss whose marks were not back in any answer that it had
    restored: set[str] = set()  # replicas whose next answer comes from data that have marks again
    writers: list[tuple[str, int | None]] = []  # each with what it believed when it wrote; None: it was not told
    for told in world.history:
        if told.at_ns > at_ns:
            break
        name = told.who.partition("/")[0]
        if told.event == "election_unanswered":
            silent_ns.setdefault(name, told.at_ns)
        elif told.event == "redis_lost_data":
            unrestored_ns.setdefault(name, silent_ns.get(name, told.at_ns))
            if told.at_ns >= loss.at_ns:
                lost_ns[name] = unrestored_ns[name]
        elif told.event in {"election_answer", "booted"} or (told.event == "revived" and told.who.endswith("elector")):
            silent_ns.pop(name, None)
            if told.event == "booted" or name in restored:
                unrestored_ns.pop(name, None)
        elif told.event == "emptied":
            restored.clear()
        elif told.event == "watermarks_seeded" and told.fields["seeded"]:
            unrestored_ns.pop(name, None)
            restored |= unrestored_ns.keys()
            if told.at_ns >= loss.at_ns:
                writers.append((name, lost_ns.get(name)))
    due_ms = decision.nominal_ms + SILENT_MS_ERROR
    began_ms = _began_ms(world)
    return not writers or any(
        since_ns is None
        or began_ms + since_ns // MILLISECOND_NS < (due_ms if name == firer else max(due_ms, decision.at_ms))
        for name, since_ns in writers
    )


def _led_before_due(world: World, who: str, decision: LogEntry) -> bool:
    """Whether ``who`` came to lead between a fire, early by the clock of the leader before, and its due time."""
    began_ms = _began_ms(world)
    return any(
        decision.at_ms <= began_ms + told.at_ns // MILLISECOND_NS < decision.nominal_ms
        for told in world.history
        if told.event == "leader_acquired" and told.who == f"{who}/elector"
    )


def _was_told(world: World, who: str, decision: LogEntry, from_ns: int, until_ns: int) -> bool:
    """Whether the scheduler of ``who`` had an answer in between that tells how this due time was decided."""
    return any(
        (decision.schedule, decision.nominal_ms) in _decided(told)
        for told in world.history
        if told.event == "fires" and told.who == f"{who}/scheduler" and from_ns <= told.at_ns <= until_ns
    )


def _decided(told: Told) -> Iterator[tuple[str, int]]:
    """Yield schedule and due time of what an answer tells: nothing of a schedule behind one that was not decided."""
    undecided = set[str]()
    for decided in told.fields["decided"]:
        if decided.code in UNDECIDED:
            undecided.add(decided.item.schedule)
        elif decided.item.schedule not in undecided:
            yield decided.item.schedule, decided.item.nominal_ms


def _begun(world: World, who: str, from_ns: int, until_ns: int) -> bool:
    """Whether a process of ``who`` began in between, and remembers nothing, or was told to forget the schedule."""
    return any(
        told.event
        in {"booted", "revived", "killed", "scheduler_hung", "pause", "redefines", "schedule_pause", "schedule_resume"}
        and told.who.partition("/")[0] in {who, "person"}
        for told in world.history
        if from_ns <= told.at_ns <= until_ns
    )
