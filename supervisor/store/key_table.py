"""Every key in Redis, behind the prefix of its cluster: what it grows with, its bound, and what clears it.

A test holds that each key which supervisor/store/keys.py or a script spells is here. ``<x>`` stands for a name.
"""

from __future__ import annotations

from typing import NamedTuple


class KeyRow(NamedTuple):
    """One key, or the keys of one pattern."""

    pattern: str
    type: str
    grows_with: str
    bound: str
    cleared_by: str


KEY_TABLE = (
    KeyRow("lease", "hash", "nothing", "constant", "nobody"),
    KeyRow("fence", "string", "nothing", "constant", "nobody"),
    KeyRow("genesis", "string", "nothing", "constant", "nobody"),
    KeyRow("copied", "string", "nothing", "60 s", "expiry"),
    KeyRow("preflight:<x>", "none", "nothing", "never written", "nobody"),
    KeyRow("alive:<epoch>", "channel", "nothing", "no key: a channel of pub/sub", "nobody"),
    KeyRow("events", "stream", "changes of the lease", "about 1,000 entries", "each entry"),
    KeyRow("candidates", "hash", "replicas", "those seen within a day", "grants and renewals"),
    KeyRow("schedule:def", "hash", "schedules", "schedules", "their removal"),
    KeyRow("schedule:next", "sorted set", "schedules", "schedules", "their removal"),
    KeyRow("schedule:mark", "hash", "schedules", "schedules", "their removal"),
    KeyRow("schedule:state", "hash", "schedules", "schedules, 20 lines each", "their removal"),
    KeyRow("schedule:paused", "hash", "schedules", "schedules", "their removal"),
    KeyRow("schedule:wait", "hash", "schedules", "schedules", "their removal"),
    KeyRow("schedule:invalid", "hash", "schedules", "schedules that cannot be used", "their next reading"),
    KeyRow("schedule:live", "hash", "unfinished runs", "max_running, or 100 lines a schedule", "the end of a run"),
    KeyRow("schedule:buf:<schedule>", "list", "buffered times", "buffer_limit, 1,000 by default", "fires"),
    KeyRow("schedule:gone", "hash", "removed schedules", "those of a day", "queues_forget, removals"),
    KeyRow("schedule:sets", "hash", "configurations", "128", "declarations"),
    KeyRow("schedule:changes", "stream", "changes of schedules", "about 1,000 entries", "each entry"),
    KeyRow("schedule:log", "stream", "decisions", "about 10,000 entries of up to 10", "each entry"),
    KeyRow("schedule:backfills", "hash", "requests", "1,000", "backfill_add"),
    KeyRow("ran:<run>", "string", "backfilled and triggered runs", "7 d, or 24 h: 10,000 a schedule each", "expiry"),
    KeyRow("schedule:keyed:<schedule>", "string", "schedules triggered with a key", "a day", "expiry"),
    KeyRow("enqueues:<nonce>", "string", "calls that add or end", "ten minutes of calls, 111 B each", "expiry"),
    KeyRow(
        "queues", "set", "names of queues", "those that hold runs, are served, or were so a day ago", "queues_forget"
    ),
    KeyRow("jobs", "hash", "names of jobs", "those published within a week", "queues_forget"),
    KeyRow("jobs:seen", "hash", "names of jobs", "as jobs", "queues_forget"),
    KeyRow("jobs:cursor", "string", "nothing", "a day", "expiry"),
    KeyRow("sessions", "hash", "worker processes", "live ones", "the end of a process, or its reaper"),
    KeyRow("session:<session>", "hash", "worker processes", "a day after the last beat", "expiry"),
    KeyRow("dying", "set", "dead worker processes", "until their runs are given back", "the reaper"),
    KeyRow("turns", "hash", "worker processes", "live ones", "the end of a process, or its reaper"),
    KeyRow("q:<queue>:data", "hash", "runs", "unfinished, and queues.dead", "the end of a run"),
    KeyRow("q:<queue>:run", "hash", "runs", "those being executed", "the end of a run"),
    KeyRow("q:<queue>:att", "hash", "runs", "as data", "the end of a run"),
    KeyRow("q:<queue>:err", "hash", "runs", "as data", "the end of a run"),
    KeyRow("q:<queue>:later", "sorted set", "runs", "unfinished", "turns"),
    KeyRow("q:<queue>:dead", "sorted set", "runs given up", "queues.dead", "each death, queue_trim"),
    KeyRow("q:<queue>:hist", "list", "ended attempts", "queues.history and 100", "each end, queue_trim"),
    KeyRow("q:<queue>:stat", "hash", "nothing", "constant", "queues_forget"),
    KeyRow("q:<queue>:limits", "hash", "runs", "unfinished", "the end of a run"),
    KeyRow("q:<queue>:blocked", "hash", "runs", "unfinished", "turns"),
    KeyRow("q:<queue>:woken", "set", "concurrency keys", "those in use", "turns"),
    KeyRow(
        "q:<queue>:wait:<key>", "list", "blocked runs", "unfinished, and entries that are skipped", "the last waiter"
    ),
    KeyRow(
        "q:<queue>:rate:<key>", "sorted set", "runs that wait for a rate", "unfinished, and skipped entries", "turns"
    ),
    KeyRow("q:<queue>:ran:<run>", "string", "ids that callers chose", "an hour of calls, 120 B each", "expiry"),
    KeyRow("q:<queue>:paused", "string", "nothing", "constant", "a person"),
    KeyRow("q:<queue>:stale", "hash", "cancels, changes of priority", "entries of lists", "turns, queues_forget"),
    KeyRow("q:<queue>:cancel", "hash", "requests", "24 h after the last", "expiry, queue_unwanted"),
    KeyRow(
        "q:<queue>:ready:<kind>:<priority>", "list", "runs", "unfinished, and stale entries", "turns, queues_forget"
    ),
    KeyRow("q:<queue>:suspect:<kind>", "list", "runs", "those in flight when a process died", "turns"),
    KeyRow("q:<queue>:bell:<kind>", "list", "nothing", "16 and a few", "turns"),
    KeyRow("limit:u", "hash", "unique keys", "unfinished runs", "the end of a run"),
    KeyRow("limit:n", "hash", "concurrency keys", "unfinished runs", "the end of a run"),
    KeyRow("limit:c:<key>", "set", "runs", "those being executed", "the end of a run"),
    KeyRow("limit:q:<key>", "set", "queues", "those in which runs wait for the key", "the last waiter"),
    KeyRow("limit:r:<key>", "string", "rate keys", "those in use, and one period", "expiry"),
    KeyRow("tally:<run>", "hash", "runs with children", "result_ttl; unfinished: 90 d", "expiry"),
    KeyRow("steps:<run>", "hash", "runs with steps", "30 d", "expiry"),
    KeyRow("result:<run>", "string", "runs with a result", "result_ttl", "expiry"),
    KeyRow("progress:<run>", "string", "runs that tell progress", "an expiry", "expiry"),
    KeyRow("commands:<replica>", "hash", "commands", "a minute", "expiry"),
    KeyRow("command:<id>", "string", "commands", "ten minutes", "expiry"),
    KeyRow("event:log", "stream", "events", "events.keep", "each entry"),
    KeyRow("event:writer:<id>", "string", "web processes", "ten minutes", "expiry"),
    KeyRow("plugins", "hash", "plugins", "a week after the last change", "expiry"),
    KeyRow("cache:<kind>:<name>", "string", "cached calls", "their ttl", "expiry"),
    KeyRow("cloudforet:<x>", "hash, list, string", "messages of SpaceONE", "24 h, 7 d, or 100", "expiry"),
)
