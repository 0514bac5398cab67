"""Where everything lies in Redis: the only place that spells a key.

Every key of a cluster begins with the same hash tag, ``{tenure:<cluster>}:``. So all of
them share one slot of a Redis Cluster, one ACL pattern covers them (``~{tenure:x}:*``), and
two clusters on one Redis never meet. Scripts that touch many keys are given this prefix as
their one declared key and derive the rest from it; that is safe because the slot is the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from supervisor.core.model import Kind

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
KIND_LETTER = {Kind.ASYNC: "a", Kind.SYNC: "s"}
LETTER_KIND = {letter: kind for kind, letter in KIND_LETTER.items()}


def check_name(what: str, name: str) -> str:
    """Return ``name`` if it may stand in a key.

    Raises:
        ValueError: it holds braces, a colon or a space, or is empty or too long.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{what} {name!r} must be 1 to 64 characters of A-Z a-z 0-9 . _ - and start with none of ._-")
    return name


def valid_names(names: Iterable[str]) -> list[str]:
    """Return those of ``names`` that may stand in a key, sorted: others were written by somebody else."""
    return sorted(name for name in names if _NAME.fullmatch(name))


class QueueKeys:
    """The keys of one queue."""

    def __init__(self, prefix: str, queue: str) -> None:
        self.queue = check_name("queue", queue)
        self.prefix = f"{prefix}q:{queue}:"
        self.data = f"{self.prefix}data"
        """Hash. Run id to kind letter, priority digit and envelope. In here: the run exists."""
        self.run = f"{self.prefix}run"
        """Hash. Run id to ``session|attempt|fetched_ms``: who works on it, and the fence."""
        self.att = f"{self.prefix}att"
        """Hash. Run id to ``attempts,crashes,interrupts``; absent on a clean first attempt."""
        self.later = f"{self.prefix}later"
        """Sorted set. Run id by due time in ms: delayed and retrying."""
        self.dead = f"{self.prefix}dead"
        """Sorted set. Run id by the time it was given up, capped."""
        self.err = f"{self.prefix}err"
        """Hash. Run id to the JSON of its last error."""
        self.hist = f"{self.prefix}hist"
        """List, capped. A line for each attempt that ended, the newest at the right."""
        self.stat = f"{self.prefix}stat"
        """Hash. Counters that only grow."""
        self.limits = f"{self.prefix}limits"
        """Hash. Run id to its limits, while it exists; for those that are unique or limited at once."""
        self.blocked = f"{self.prefix}blocked"
        """Hash. Run id to the concurrency key that it waits for; their order is in ``wait:<key>``."""
        self.woken = f"{self.prefix}woken"
        """Set. Concurrency keys that may have room again."""
        self.paused = f"{self.prefix}paused"
        """String. Present while nothing may be fetched; holds the reason."""

    def ready(self, kind: Kind, priority: int) -> str:
        """List. Ids that may start, fetched from the left."""
        return f"{self.prefix}ready:{KIND_LETTER[kind]}:{priority}"

    def suspect(self, kind: Kind) -> str:
        """List. Ids that were in flight when a process died of one of them; each runs alone next."""
        return f"{self.prefix}suspect:{KIND_LETTER[kind]}"

    def bell(self, kind: Kind) -> str:
        """List. Tokens that wake idle workers, at most 16."""
        return f"{self.prefix}bell:{KIND_LETTER[kind]}"


class Keys:
    """The keys of one cluster."""

    def __init__(self, cluster: str) -> None:
        self.cluster = check_name("cluster", cluster)
        self.prefix = f"{{tenure:{cluster}}}:"
        self.lease = f"{self.prefix}lease"
        """Hash. The current term. No expiry: that a holder is dead is observed, not computed."""
        self.fence = f"{self.prefix}fence"
        """String. Highest epoch ever granted; survives the loss of the lease."""
        self.genesis = f"{self.prefix}genesis"
        """String. Identity of this data set, written once: tells an emptied one from an old one."""
        self.events = f"{self.prefix}events"
        """Stream, capped. What happened to the lease; standbys block on it."""
        self.candidates = f"{self.prefix}candidates"
        """Hash. Replica to ``seen_ms json``: who could lead."""
        self.alive = f"{self.prefix}alive:"
        """Prefix of pub/sub channels, one for each epoch. Its holder is subscribed; nothing is ever published."""
        self.schedule_def = f"{self.prefix}schedule:def"
        """Hash. Schedule to revision, timing digest, set digest and definition, one per line."""
        self.schedule_next = f"{self.prefix}schedule:next"
        """Sorted set. Schedule by its next due time in ms."""
        self.schedule_mark = f"{self.prefix}schedule:mark"
        """Hash. Schedule to the newest nominal time that was decided: the watermark."""
        self.schedule_log = f"{self.prefix}schedule:log"
        """Stream, capped. What the scheduler decided."""
        self.schedule_live = f"{self.prefix}schedule:live"
        """Hash. Schedule to ``queue run`` lines of its unfinished runs, where overlap is skip."""
        self.schedule_sets = f"{self.prefix}schedule:sets"
        """Hash. Digest of a set of schedules to its revision; beside them ``#revision``, ``#applied``, ``#zones``."""
        self.schedule_changes = f"{self.prefix}schedule:changes"
        """Stream, capped. One entry for each change that the leader must look at; it wakes its listener."""
        self.schedule_paused = f"{self.prefix}schedule:paused"
        """Hash. Schedule to the JSON of its pause, which outlives any reload: reason, by, at_ms, until_ms."""
        self.schedule_state = f"{self.prefix}schedule:state"
        """Hash. Schedule to its counters and its latest decisions, packed."""
        self.schedule_invalid = f"{self.prefix}schedule:invalid"
        """Hash. Schedule to revision and reason, on a line each, where the leader cannot use its definition."""
        self.schedule_wait = f"{self.prefix}schedule:wait"
        """Hash. Schedule to what the end of one of its runs must cause; absent where nothing waits."""
        self.schedule_gone = f"{self.prefix}schedule:gone"
        """Hash. Schedule to what is remembered of a removed one for a day, so that re-adding restores it."""
        self.schedule_backfills = f"{self.prefix}schedule:backfills"
        """Hash. Backfill to the JSON of its request and how far it got."""
        self.sessions = f"{self.prefix}sessions"
        """Hash. Session of a worker process to its beat counter."""
        self.dying = f"{self.prefix}dying"
        """Set. Sessions whose runs are being given back."""
        self.turns = f"{self.prefix}turns"
        """Hash. Session to its last turn, so that a turn whose reply was lost can be asked again."""
        self.jobs = f"{self.prefix}jobs"
        """Hash. Job name to the JSON that bare producers route by."""
        self.enqueues = f"{self.prefix}enqueues"
        """Prefix of strings that expire after ten minutes: nonce of an enqueue, a cancel or a pause to its reply."""
        self.unique_keys = f"{self.prefix}limit:u"
        """Hash. Unique key to ``queue id`` of the run that holds it; the other limits: lua/lib/limits.lua."""
        self.queues = f"{self.prefix}queues"
        """Set. Every queue that ever held a run."""

        self.commands = f"{self.prefix}commands:"
        """Prefix of hashes, one for each replica, that expire within a minute: command id to the command."""
        self.command = f"{self.prefix}command:"
        """Prefix of strings that expire after ten minutes: command id to what became of it."""

    @property
    def jobs_seen(self) -> str:
        """Hash. Job name to when it was last published; what nobody publishes for a week is forgotten."""
        return f"{self.prefix}jobs:seen"

    @property
    def event_log(self) -> str:
        """Stream, capped. Events of all replicas, as JSON; not to be taken for ``events``, which is the election's."""
        return f"{self.prefix}event:log"

    def event_writer(self, writer: str) -> str:
        """String, expires after ten minutes. Number of the last batch that this web process wrote."""
        return f"{self.prefix}event:writer:{writer}"

    @property
    def plugins(self) -> str:
        """Hash, expires a week after its last change. Plugin and digest of its options to what is known of it."""
        return f"{self.prefix}plugins"

    def schedule_buffer(self, schedule: str) -> str:
        """List. Nominal times of ``schedule`` that wait for a run of it to end."""
        return f"{self.prefix}schedule:buf:{schedule}"

    def ran(self, run_id: str) -> str:
        """String, expires after a week. The run was enqueued by a backfill or a keyed trigger."""
        return f"{self.prefix}ran:{run_id}"

    def session(self, session: str) -> str:
        """Hash, expires one day after its last beat. What this worker process is."""
        return f"{self.prefix}session:{session}"

    def result(self, run_id: str) -> str:
        """String, expires. What the run returned."""
        return f"{self.prefix}result:{run_id}"

    def tally(self, run_id: str) -> str:
        """Hash, expires. What became of the runs below a run; its fields are in lua/lib/limits.lua."""
        return f"{self.prefix}tally:{run_id}"

    def steps(self, run_id: str) -> str:
        """Hash, expires. The steps of a run that ended, by name: JSON; ``#born`` beside them."""
        return f"{self.prefix}steps:{run_id}"

    def cache(self, kind: str, name: str) -> str:
        """String, expires. A cached value (kind ``v``), or who computes it (``l``)."""
        return f"{self.prefix}cache:{kind}:{name}"

    def progress(self, run_id: str) -> str:
        """String, expires. Fence of the execution, a space, and the JSON of how far it says it is."""
        return f"{self.prefix}progress:{run_id}"

    def queue(self, queue: str) -> QueueKeys:
        """Return the keys of ``queue``."""
        return QueueKeys(self.prefix, queue)
