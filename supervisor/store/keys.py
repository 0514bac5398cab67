"""Keys in Redis: those of ``key_table``, for Python.

Every key of a cluster begins with the same hash tag, ``{tenure:<cluster>}:``. So all of
them share one slot of a Redis Cluster, one ACL pattern covers them (``~{tenure:x}:*``), and
two clusters on one Redis never meet. Scripts that touch many keys are given this prefix as
their one declared key and derive the rest from it; that is safe because the slot is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from supervisor.core.model import Kind
from supervisor.core.names import check_name
from supervisor.store.key_table import PIECES, spell

CLUSTERS = "tenure:clusters"
"""Hash of a database: name of a cluster to the moment, in ms, when a replica of it wrote that last. At most 1,000.

The one key without the hash tag of a cluster: another node of a Redis Cluster may have it, and nothing depends on it.
"""

KIND_LETTER = {Kind.ASYNC: "a", Kind.SYNC: "s"}
LETTER_KIND = {letter: kind for kind, letter in KIND_LETTER.items()}


class QueueKeys:
    """The keys of one queue."""

    data: str
    """Hash. Run id to kind letter, priority digit and envelope. In here: the run exists."""
    run: str
    """Hash. Run id to ``session|attempt|fetched_ms``: who works on it, and the fence."""
    att: str
    """Hash. Run id to ``attempts,crashes,interrupts``; absent on a clean first attempt."""
    later: str
    """Sorted set. Run id by due time in ms: delayed and retrying."""
    dead: str
    """Sorted set. Run id by the time it was given up, capped."""
    err: str
    """Hash. Run id to the JSON of its last error."""
    hist: str
    """List, capped. A line for each attempt that ended, the newest at the right."""
    stat: str
    """Hash. Counters that only grow."""
    limits: str
    """Hash. Run id to its limits, while it exists; for those that are unique or limited at once."""
    blocked: str
    """Hash. Run id to the concurrency key that it waits for; their order is in ``wait:<key>``."""
    woken: str
    """Set. Concurrency keys that may have room again."""
    paused: str
    """String. Present while nothing may be fetched; holds the reason."""

    def __init__(self, prefix: str, queue: str) -> None:
        self.queue = check_name("queue", queue)
        self._cluster = prefix
        self.prefix = self._of("queue")
        for name in QueueKeys.__annotations__:
            setattr(self, name, self._of(name))

    def ready(self, kind: Kind, priority: int) -> str:
        """List. Ids that may start, fetched from the left."""
        return self._of("ready", KIND_LETTER[kind], str(priority))

    def suspect(self, kind: Kind) -> str:
        """List. Ids that were in flight when a process died of one of them; each runs alone next."""
        return self._of("suspect", KIND_LETTER[kind])

    def bell(self, kind: Kind) -> str:
        """List. Tokens that wake idle workers, at most 16."""
        return self._of("bell", KIND_LETTER[kind])

    def _of(self, name: str, *values: str) -> str:
        return self._cluster + spell(name, self.queue, *values)


class LeaseKeys:
    """The keys of one lease: the replicas', or a leadership's of programs."""

    name = ""
    """Name of the leadership; empty: the replicas'."""

    alive = ""
    """Prefix of pub/sub channels, one for each epoch. Its holder is subscribed; nothing is ever published."""

    def __init__(self, prefix: str, leadership: str | None = None) -> None:
        """Build those of the replicas, or of the leadership of that name."""
        self.prefix = prefix
        if leadership is not None:
            self.name = leadership
        self.lease = self._of_lease("lease")
        """Hash. The current term. The replicas' has no expiry: that a holder is dead is observed, not computed."""
        self.fence = self._of_lease("fence")
        """String. Highest epoch ever granted; survives the loss of the lease."""
        self.genesis = self._of_lease("genesis")
        """String. Identity of this data set, written once: tells an emptied one from an old one."""
        self.events = self._of_lease("events")
        """Stream, capped. What happened to the lease; standbys block on it."""
        self.candidates = self._of_lease("candidates")
        """Hash. Replica to ``seen_ms json``: who could lead."""

    def _of_lease(self, name: str) -> str:
        return self.prefix + (spell(f"leadership_{name}", self.name) if self.name else spell(name))


class Keys(LeaseKeys):
    """The keys of one cluster."""

    schedule_def: str
    """Hash. Schedule to revision, timing digest, set digest and definition, one per line."""
    schedule_next: str
    """Sorted set. Schedule by its next due time in ms."""
    schedule_mark: str
    """Hash. Schedule to the newest nominal time that was decided: the watermark."""
    schedule_log: str
    """Stream, capped. What the scheduler decided."""
    schedule_live: str
    """Hash. Schedule to ``queue run`` lines of its unfinished runs, where overlap is skip."""
    schedule_sets: str
    """Hash. Digest of a set of schedules to its revision; beside them ``#revision``, ``#applied``, ``#zones``."""
    schedule_changes: str
    """Stream, capped. One entry for each change that the leader must look at; it wakes its listener."""
    schedule_paused: str
    """Hash. Schedule to the JSON of its pause, which outlives any reload: reason, by, at_ms, until_ms."""
    schedule_state: str
    """Hash. Schedule to its counters and its latest decisions, packed."""
    schedule_wait: str
    """Hash. Schedule to what the end of one of its runs must cause; absent where nothing waits."""
    schedule_gone: str
    """Hash. Schedule to what is remembered of a removed one for a day, so that re-adding restores it."""
    schedule_backfills: str
    """Hash. Backfill to the JSON of its request and how far it got."""
    sessions: str
    """Hash. Session of a worker process to its beat counter."""
    dying: str
    """Set. Sessions whose runs are being given back."""
    turns: str
    """Hash. Session to its last turn, so that a turn whose reply was lost can be asked again."""
    jobs: str
    """Hash. Job name to the JSON that bare producers route by."""
    queues: str
    """Set. Every queue that ever held a run."""
    schedule_promised: str
    """Sorted set. Schedules and runs by the time until which a success, or the end, is expected."""
    length_max: str
    """String. How many runs may wait in a queue; absent: any number."""
    jobs_seen: str
    """Hash. Job name to when it was last published; jobs that nobody publishes for a week are forgotten."""
    event_log: str
    """Stream, capped. Events of all replicas, as JSON; not to be taken for ``events``, which is the election's."""
    plugins: str
    """Hash, expires a week after its last change. Plugin and digest of its options to its known facts."""
    awaited: str
    """Hash. Id of an unfinished run to the bells of those who wait for its end."""
    event_writer: Callable[[str], str]
    """String, expires after ten minutes. Number of the last batch that this web process wrote."""
    schedule_buffer: Callable[[str], str]
    """List. Nominal times of ``schedule`` that wait for a run of it to end."""
    ran: Callable[[str], str]
    """String, expires after a week. The run was enqueued by a backfill or a keyed trigger."""
    session: Callable[[str], str]
    """Hash, expires one day after its last beat. Description of this worker process."""
    result: Callable[[str], str]
    """String, expires. Return value of the run."""
    run_log: Callable[[str], str]
    """Hash, expires. Number of an execution to the JSON of its output; beside them ``#born``."""
    tally: Callable[[str], str]
    """Hash, expires. Outcomes of the runs below a run; its fields are in lua/lib/run.lua."""
    steps: Callable[[str], str]
    """Hash, expires. The steps of a run that ended, by name: JSON; ``#born`` beside them."""
    ended: Callable[[str], str]
    """String, expires. JSON of how a run ended whose end somebody waited for."""
    rung: Callable[[str], str]
    """List, expires. Ids of ended runs, for the process whose bell it is."""
    cache_value: Callable[[str, str], str]
    """String, expires. Value of a cached call, by function and key. No name of a function holds the mark between."""
    cache_take: Callable[[str, str], str]
    """Hash, expires. Who computes a cached call, until when, and the mark of the computation."""
    cache_calls: Callable[[str], str]
    """Sorted set, expires. Keys of a function's calls by the time until which they are kept."""
    progress: Callable[[str], str]
    """String, expires. Fence of the execution, a space, and the JSON of its reported progress."""

    def __init__(self, cluster: str) -> None:
        self.cluster = check_name("cluster", cluster)
        super().__init__(f"{{tenure:{cluster}}}:")
        self.alive = self._of("alive", "")
        self.enqueues = self._of("enqueues", "")
        """Prefix of strings that expire after ten minutes: nonce of an enqueue, a cancel or a pause to its reply."""
        self.commands = self._of("commands", "")
        """Prefix of hashes, one for each replica, that expire within a minute: command id to the command."""
        self.command = self._of("command", "")
        """Prefix of strings that expire after ten minutes: command id to what became of it."""
        for name in Keys.__annotations__:
            setattr(self, name, self._of(name) if len(PIECES[name]) == 1 else partial(self._of, name))

    def leadership(self, name: str) -> LeaseKeys:
        """Return the keys of the lease that programs contend for by ``name``; they expire when nobody does."""
        return LeaseKeys(self.prefix, check_name("leadership", name))

    def queue(self, queue: str) -> QueueKeys:
        """Return the keys of ``queue``."""
        return QueueKeys(self.prefix, queue)

    def _of(self, name: str, *values: str) -> str:
        return self.prefix + spell(name, *values)
