"""Health checks of this replica, alive and ready: facts in, checks out.

Text and query semantics are those of Kubernetes' components, whose probes and habits
people bring along (k8s.io/apiserver, server/healthz). Three differences, on purpose: a
failed check gives its reason, since reads are on loopback unless somebody opens them; a
failed /readyz is 503, as every load balancer understands; and liveness never depends on
Redis, whose outage would otherwise restart every replica at once and heal nothing.

Facts come from the scoreboard. Nothing here reads a clock or does I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from supervisor.core.election.clock_skew import SKEW_MS_MAX
from supervisor.core.election.lease import Term
from supervisor.core.model import Kind
from supervisor.core.supervision.scoreboard import MAGIC, Board
from supervisor.core.supervision.states import Phase, SlotState
from supervisor.core.units import SECOND_NS

PARENT_BEAT_MAX_S = 5.0
REDIS_ANSWER_MAX_S = 10.0
TURN_MAX_S = 30.0
"""How long a child may wait for an answer of Redis before it says that it is cut off."""

ELECTOR_LATE_MAX_S = 1.0
"""The deadline on the board has a margin already; this much more is a machine that was asleep."""

UNSERVED_SHOWN = 10

OVERDUE_GRACE_S = 20.0
"""How long beyond a whole lease a leader may be without renewal; client-go's own figure."""

_PHASES = frozenset(map(int, Phase))
_STATES = frozenset(map(int, SlotState))
_WITH_PROCESS = frozenset(state for state in SlotState if state.has_process)


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """One child, as far as its health goes."""

    name: str
    role: str
    pool: str | None
    state: SlotState
    redis_ok_ns: int = 0
    asking_ns: int = 0  # since when it waits for an answer
    is_quiet: bool = False
    ill_resources: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """Input of the health checks, read from the board at one moment."""

    now_ns: int
    is_board_sound: bool
    phase: Phase
    parent_beat_ns: int
    term: Term
    elector_due_ns: int
    ineligible_until_ns: int
    is_held: bool
    clock_skew_ms: int
    lease_duration_s: float
    pools: tuple[str, ...]
    slots: tuple[SlotFacts, ...]


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check. ``reason`` is empty when it passed; ``note``: remarks worth knowing all the same."""

    name: str
    reason: str = ""
    note: str = ""

    @property
    def ok(self) -> bool:
        """True if it passed."""
        return not self.reason


class HealthEndpoint(Enum):
    """One of the three questions, with the status of the answer no."""

    LIVEZ = ("livez", 500)
    READYZ = ("readyz", 503)
    HEALTHZ = ("healthz", 500)

    def __init__(self, title: str, failed_status: int) -> None:
        self.title = title
        self.failed_status = failed_status


@dataclass(frozen=True, slots=True)
class HealthReport:
    """An answer, ready to be sent as plain text."""

    status: int
    body: str


def role_of(slot_name: str) -> tuple[str, str | None]:
    """Return the role and the pool in a slot's name: ``worker-io-0`` is pool ``io``."""
    if slot_name.startswith("worker-"):
        return "worker", slot_name.removeprefix("worker-").rpartition("-")[0]
    return slot_name, None


def facts(
    board: Board,
    *,
    now_ns: int,
    slot_names: Sequence[str],
    pools: Sequence[str],
    lease_duration_s: float,
) -> Facts:
    """Read the input of the checks from ``board``."""
    header = board.header
    is_sound = header.magic == MAGIC and header.slots == board.slots and header.phase in _PHASES
    slots = []
    for name, row in zip(slot_names, board.rows, strict=False):
        role, pool = role_of(name)
        state = SlotState(row.state) if row.state in _STATES else SlotState.FATAL
        is_sound = is_sound and row.state in _STATES
        asked = (row.redis_ok_ns, row.asking_ns)
        ill = row.ill_resources if role == "worker" else 0
        slots.append(SlotFacts(name, role, pool, state, *asked, is_quiet=bool(row.is_quiet), ill_resources=ill))
    return Facts(
        now_ns=now_ns,
        is_board_sound=is_sound,
        phase=Phase(header.phase) if header.phase in _PHASES else Phase.STARTING,
        parent_beat_ns=header.parent_beat_ns,
        term=board.term(),
        elector_due_ns=header.elector_due_ns,
        ineligible_until_ns=header.ineligible_until_ns,
        is_held=bool(header.is_held),
        clock_skew_ms=header.clock_skew_ms,
        lease_duration_s=lease_duration_s,
        pools=tuple(pools),
        slots=tuple(slots),
    )


def checks(
    endpoint: HealthEndpoint,
    of: Facts,
    *,
    unserved: Sequence[tuple[str, Kind, int]] = (),
    late: Sequence[str] = (),
    differing: str = "",
) -> list[HealthCheck]:
    """Return the checks of ``endpoint`` in the order they are shown.

    Args:
        endpoint: the question.
        of: this replica.
        unserved: queues of the cluster whose runs no live worker takes: name, kind, how many wait. A note, no failure.
        late: schedules of the cluster that break what they promise about their runs. A note, no failure.
        differing: which replicas have other static schedules than the rest. A note, no failure.
    """
    match endpoint:
        case HealthEndpoint.LIVEZ:
            return _live(of)
        case HealthEndpoint.READYZ:
            remarks = _late(late), differing and f"static schedules: {differing}"
            schedules = HealthCheck("schedules", note="; ".join(filter(None, remarks)))
            return [*_ready(of), HealthCheck("queues", note=_waiting_in_vain(unserved)), schedules]
        case HealthEndpoint.HEALTHZ:
            return [
                *_live(of),
                HealthCheck("leaderElection", _overdue(of)),
                HealthCheck("electionWatchdog", _stuck(of)),
            ]


def is_serving(results: Sequence[HealthCheck]) -> bool:
    """Return whether every check passed: the one word that Cloudforet's /check and gRPC's health have."""
    return all(check.ok for check in results)


def report(
    endpoint: HealthEndpoint, results: Sequence[HealthCheck], *, verbose: bool = False, exclude: Collection[str] = ()
) -> HealthReport:
    """Render ``results``: ``ok``, or a line for each check when asked for or when one failed."""
    lines = []
    failed = False
    for check in results:
        if check.name in exclude:
            lines.append(f"[+]{check.name} excluded: ok")
        elif check.ok:
            lines.append(f"[+]{check.name} ok{f': {check.note}' if check.note else ''}")
        else:
            failed = True
            lines.append(f"[-]{check.name} failed: {check.reason}")
    unknown = sorted(set(exclude) - {check.name for check in results})
    if unknown:
        quoted = ",".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}")
    if failed:
        return HealthReport(endpoint.failed_status, "\n".join([*lines, f"{endpoint.title} check failed", ""]))
    return HealthReport(200, "\n".join([*lines, f"{endpoint.title} check passed", ""]) if verbose else "ok")


def report_one(endpoint: HealthEndpoint, results: Sequence[HealthCheck], name: str) -> HealthReport | None:
    """Render the check ``name`` alone; None when there is no such check."""
    check = next((check for check in results if check.name == name), None)
    if check is None or check.ok:
        return None if check is None else HealthReport(200, "ok")
    return HealthReport(endpoint.failed_status, f"internal server error: {check.reason}\n")


def _live(of: Facts) -> list[HealthCheck]:
    return [
        HealthCheck("ping"),
        HealthCheck("supervisor", _age(of, of.parent_beat_ns, PARENT_BEAT_MAX_S, "the parent's last beat")),
        HealthCheck(
            "scoreboard", "" if of.is_board_sound else "the shared memory does not hold a board of this layout"
        ),
    ]


def _ready(of: Facts) -> list[HealthCheck]:
    return [
        HealthCheck("startup", "the tree is still starting" if of.phase is Phase.STARTING else ""),
        HealthCheck("shutdown", "the tree is stopping" if of.phase in {Phase.DRAINING, Phase.KILLING} else ""),
        HealthCheck("agent", _down(of, "agent", frozenset({SlotState.RUNNING}))),
        HealthCheck("scheduler", _down(of, "scheduler", _WITH_PROCESS) or _cut_off(of, "scheduler")),
        HealthCheck("workers", _idle_pools(of)),
        HealthCheck("redis", _redis(of)),
        HealthCheck("turns", _cut_off(of, "worker")),
        HealthCheck("resources", _ill(of)),
        HealthCheck("election", _stuck(of) or _unfit(of)),
        HealthCheck("clock", _skewed(of)),
    ]


def _down(of: Facts, role: str, up: Collection[SlotState]) -> str:
    for slot in of.slots:
        if slot.role == role:
            return "" if slot.state in up else f"{slot.name} is {slot.state.name.lower()}"
    return f"there is no {role}"


def _idle_pools(of: Facts) -> str:
    # A pool that a person made quiet is as it should be.
    up = {
        slot.pool for slot in of.slots if slot.role == "worker" and (slot.state is SlotState.RUNNING or slot.is_quiet)
    }
    missing = [pool for pool in of.pools if pool not in up]
    return f"no worker is running in pool {', '.join(missing)}" if missing else ""


def _redis(of: Facts) -> str:
    # The agent's word alone: it is the child that keeps sessions and the lease alive.
    asked = [slot.redis_ok_ns for slot in of.slots if slot.role == "agent"]
    return _age(of, max(asked, default=0), REDIS_ANSWER_MAX_S, "Redis' last answer to the agent")


def _cut_off(of: Facts, role: str) -> str:
    """Name children that ask Redis in vain, whatever the agent hears: workers, or a scheduler that leads."""
    waiting = [
        (slot.name, (of.now_ns - slot.asking_ns) / SECOND_NS)
        for slot in of.slots
        if slot.role == role and slot.state is SlotState.RUNNING and slot.asking_ns
    ]
    late = [(name, age_s) for name, age_s in waiting if age_s >= TURN_MAX_S]
    if not late:
        return ""
    name, age_s = late[0]
    others = f", and {len(late) - 1} more" if len(late) > 1 else ""
    return f"{name} has had no answer of Redis for {age_s:.0f} s{others}"


def _ill(of: Facts) -> str:
    """Name workers whose jobs lack shared resources, such as a database."""
    found = [slot for slot in of.slots if slot.state is SlotState.RUNNING and slot.ill_resources]
    if not found:
        return ""
    others = f", and {len(found) - 1} more" if len(found) > 1 else ""
    where = f"{found[0].ill_resources} of the resources of {found[0].name}"
    return f"{where} did not answer when last asked{others}; its log says which (resource_failing)"


def _stuck(of: Facts) -> str:
    """Name an elector whose loop does not turn: it neither renews nor would it take over."""
    late_s = (of.now_ns - of.elector_due_ns) / SECOND_NS
    if of.elector_due_ns == 0 or late_s <= ELECTOR_LATE_MAX_S:
        return ""
    return f"the elector's loop should have turned {late_s:.1f} s ago"


def _unfit(of: Facts) -> str:
    """Return why this replica, which should lead or could, may not."""
    if of.is_held:
        return "it leads, and holds every fire, since Redis lost data; look, then run `tenure leader clear-hold`"
    wait_s = (of.ineligible_until_ns - of.now_ns) / SECOND_NS
    if wait_s > 0:
        return f"its scheduler keeps failing; it contends again in {wait_s:.0f} s"
    over_s = (of.now_ns - of.term.trusted_until_ns) / SECOND_NS
    if of.term.epoch > 0 and of.term.trusted_until_ns > 0 and over_s > of.lease_duration_s:
        return f"it leads by its own record, but its trust ended {over_s:.1f} s ago"
    return ""


def _skewed(of: Facts) -> str:
    """Report that this machine and Redis do not agree on the time; which of the two is wrong is not known."""
    if abs(of.clock_skew_ms) <= SKEW_MS_MAX:
        return ""
    word = "ahead of" if of.clock_skew_ms > 0 else "behind"
    return f"this machine's clock is {abs(of.clock_skew_ms) / 1000:.1f} s {word} Redis'; set both by NTP"


def _waiting_in_vain(unserved: Sequence[tuple[str, Kind, int]]) -> str:
    """Name queues that no live worker of any replica serves; roles may lie on replicas that are not up yet."""
    shown = ", ".join(f"{queue} ({waiting} {kind.value})" for queue, kind, waiting in unserved[:UNSERVED_SHOWN])
    more = f" and {len(unserved) - UNSERVED_SHOWN} more" if len(unserved) > UNSERVED_SHOWN else ""
    return f"runs wait in queues that no live worker takes: {shown}{more}" if unserved else ""


def _late(schedules: Sequence[str]) -> str:
    """Name schedules without a success, or with a run that has not ended, in the time that they promise."""
    more = f" and {len(schedules) - UNSERVED_SHOWN} more" if len(schedules) > UNSERVED_SHOWN else ""
    return f"late by their own promise: {', '.join(schedules[:UNSERVED_SHOWN])}{more}" if schedules else ""


def _overdue(of: Facts) -> str:
    """Name a holder whose trust ended long ago: it can neither renew nor learn that another replica leads."""
    if of.term.epoch == 0 or of.term.trusted_until_ns == 0:  # follows; or must not fire yet, which readyz tells
        return ""
    overdue_s = (of.now_ns - of.term.trusted_until_ns) / SECOND_NS
    limit_s = of.lease_duration_s + OVERDUE_GRACE_S
    return f"it holds the lease, but the last renewal is overdue by {overdue_s:.1f} s" if overdue_s > limit_s else ""


def _age(of: Facts, at_ns: int, limit_s: float, what: str) -> str:
    if at_ns == 0:
        return f"{what} has not come yet"
    age_s = (of.now_ns - at_ns) / SECOND_NS
    return f"{what} was {age_s:.1f} s ago, more than {limit_s:g} s" if age_s >= limit_s else ""
