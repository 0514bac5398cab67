"""Every key in Redis, behind the prefix of its cluster: the cause of its growth, its bound, and its removal.

The only place that spells a key: ``keys.py`` builds them for Python by their names here, and the loader of scripts
replaces ``keys.<name>`` in Lua (``scripts.py``). ``<x>`` means a value; those of a queue begin with the queue.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class KeyRow(NamedTuple):
    """One key, or the keys of one pattern."""

    name: str
    pattern: str
    type: str
    grows_with: str
    bound: str
    cleared_by: str


_LEASE = ("lease", "fence", "genesis", "events", "candidates")
KEY_TABLE = (
    KeyRow("lease", "lease", "hash", "nothing", "constant", "nobody"),
    KeyRow("fence", "fence", "string", "nothing", "constant", "nobody"),
    KeyRow("genesis", "genesis", "string", "nothing", "constant", "nobody"),
    KeyRow("copied", "copied", "string", "nothing", "60 s", "expiry"),
    KeyRow("preflight", "preflight:<x>", "none", "nothing", "never written", "nobody"),
    KeyRow("alive", "alive:<epoch>", "channel", "nothing", "no key: a channel of pub/sub", "nobody"),
    KeyRow("events", "events", "stream", "changes of the lease", "about 1,000 entries", "each entry"),
    KeyRow("candidates", "candidates", "hash", "replicas", "those seen within a day", "grants and renewals"),
    KeyRow("schedule_def", "schedule:def", "hash", "schedules", "schedules", "their removal"),
    KeyRow("schedule_next", "schedule:next", "sorted set", "schedules", "schedules", "their removal"),
    KeyRow("schedule_mark", "schedule:mark", "hash", "schedules", "schedules", "their removal"),
    KeyRow("schedule_state", "schedule:state", "hash", "schedules", "schedules, 20 lines each", "their removal"),
    KeyRow("schedule_paused", "schedule:paused", "hash", "schedules", "schedules", "their removal"),
    KeyRow("schedule_wait", "schedule:wait", "hash", "schedules", "schedules", "their removal"),
    KeyRow("schedule_invalid", "schedule:invalid", "hash", "schedules", "schedules that cannot be used", "their next reading"),
    KeyRow("schedule_live", "schedule:live", "hash", "unfinished runs, former names of 90 d", "1,000 lines a schedule", "the end of a run, removals"),
    KeyRow("schedule_buffer", "schedule:buf:<schedule>", "list", "buffered times", "buffer_limit, 1,000 by default", "fires"),
    KeyRow("schedule_after", "schedule:after", "hash", "schedules that follow others", "100 ids for each", "their removal"),
    KeyRow("schedule_expected", "schedule:expected", "hash", "schedules with expectations", "schedules", "their removal"),
    KeyRow("schedule_promised", "schedule:promised", "sorted set", "schedules with expectations, and their unfinished runs", "schedules, and 100,000 runs", "schedule_expectations"),
    KeyRow("schedule_gone", "schedule:gone", "hash", "removed schedules", "those of a day, renamed ones of 90 d", "queues_forget, removals"),
    KeyRow("schedule_sets", "schedule:sets", "hash", "configurations", "128", "declarations"),
    KeyRow("schedule_changes", "schedule:changes", "stream", "changes of schedules", "about 1,000 entries", "each entry"),
    KeyRow("schedule_log", "schedule:log", "stream", "decisions", "about 10,000 entries of up to 10", "each entry"),
    KeyRow("schedule_backfills", "schedule:backfills", "hash", "requests", "1,000", "backfill_add"),
    KeyRow("ran", "ran:<run>", "string", "backfilled and triggered runs, followers, names before and after a rename", "7 d, 24 h, 90 d: 10,000 a schedule each", "expiry"),
    KeyRow("schedule_keyed", "schedule:keyed:<schedule>", "string", "schedules triggered with a key", "a day", "expiry"),
    KeyRow("enqueues", "enqueues:<nonce>", "string", "calls that add or end", "ten minutes of calls, 111 B each", "expiry"),
    KeyRow("queues", "queues", "set", "names of queues", "those that hold runs, are served, or were so a day ago", "queues_forget"),
    KeyRow("length_max", "queues:length_max", "string", "nothing", "constant", "agents without queues.length_max"),
    KeyRow("jobs", "jobs", "hash", "names of jobs", "those published within a week", "queues_forget"),
    KeyRow("jobs_seen", "jobs:seen", "hash", "names of jobs", "as jobs", "queues_forget"),
    KeyRow("jobs_cursor", "jobs:cursor", "string", "nothing", "a day", "expiry"),
    KeyRow("sessions", "sessions", "hash", "worker processes", "live ones", "the end of a process, or its reaper"),
    KeyRow("session", "session:<session>", "hash", "worker processes", "30 days after the last beat", "expiry"),
    KeyRow("dying", "dying", "set", "dead worker processes", "until their runs are given back", "the reaper"),
    KeyRow("turns", "turns", "hash", "worker processes", "live ones", "the end of a process, or its reaper"),
    KeyRow("queue", "q:<queue>:", "none", "nothing", "no key: what those of a queue begin with", "nobody"),
    KeyRow("data", "q:<queue>:data", "hash", "runs", "unfinished, and queues.dead", "the end of a run"),
    KeyRow("run", "q:<queue>:run", "hash", "runs", "those being executed", "the end of a run"),
    KeyRow("att", "q:<queue>:att", "hash", "runs", "as data", "the end of a run"),
    KeyRow("err", "q:<queue>:err", "hash", "runs", "as data", "the end of a run"),
    KeyRow("later", "q:<queue>:later", "sorted set", "runs", "unfinished", "turns"),
    KeyRow("dead", "q:<queue>:dead", "sorted set", "runs given up", "queues.dead", "each death, queue_trim"),
    KeyRow("hist", "q:<queue>:hist", "list", "ended attempts", "queues.history and 100", "each end, queue_trim"),
    KeyRow("stat", "q:<queue>:stat", "hash", "nothing", "constant", "queues_forget"),
    KeyRow("limits", "q:<queue>:limits", "hash", "runs", "unfinished", "the end of a run"),
    KeyRow("blocked", "q:<queue>:blocked", "hash", "runs", "unfinished", "turns"),
    KeyRow("woken", "q:<queue>:woken", "set", "concurrency keys", "those in use", "turns"),
    KeyRow("wait", "q:<queue>:wait:<key>", "list", "blocked runs", "unfinished, and entries that are skipped", "the last waiter, queues_forget"),
    KeyRow("rate", "q:<queue>:rate:<kind>:<key>", "sorted set", "runs that wait for a rate", "unfinished, and skipped entries", "turns"),
    KeyRow("ran_in", "q:<queue>:ran:<run>", "string", "ids that callers chose", "an hour of calls, 120 B each", "expiry"),
    KeyRow("paused", "q:<queue>:paused", "string", "nothing", "constant", "a person"),
    KeyRow("stale", "q:<queue>:stale", "hash", "cancels, changes of priority", "entries of lists", "turns, queues_forget"),
    KeyRow("cancel", "q:<queue>:cancel", "hash", "requests", "24 h after the last", "expiry, queue_unwanted"),
    KeyRow("ready", "q:<queue>:ready:<kind>:<priority>", "list", "runs", "unfinished, and stale entries", "turns, queues_forget"),
    KeyRow("suspect", "q:<queue>:suspect:<kind>", "list", "runs", "those in flight when a process died", "turns"),
    KeyRow("bell", "q:<queue>:bell:<kind>", "list", "nothing", "16 and a few", "turns"),
    KeyRow("limit_unique", "limit:u", "hash", "unique keys", "unfinished runs", "the end of a run"),
    KeyRow("limit_newest", "limit:n", "hash", "concurrency keys", "unfinished runs", "the end of a run"),
    KeyRow("limit_slots", "limit:c:<key>", "set", "runs", "those being executed", "the end of a run"),
    KeyRow("limit_queues", "limit:q:<key>", "set", "queues", "those in which runs wait for the key", "the last waiter, queues_forget"),
    KeyRow("limit_line", "limit:w:<key>", "sorted set", "queues", "those in which runs wait for the key", "turns, a day"),
    KeyRow("limit_rate", "limit:r:<key>", "string", "rate keys", "those in use, and one period", "expiry"),
    KeyRow("tally", "tally:<run>", "hash", "runs with children", "result_ttl; unfinished: 90 d", "expiry"),
    KeyRow("steps", "steps:<run>", "hash", "runs with steps", "30 d", "expiry"),
    KeyRow("run_log", "log:<run>", "hash", "runs with kept output", "5 times 130 KiB, and 7 d", "expiry, later output"),
    KeyRow("run_logs", "logs", "sorted set", "runs with kept output", "those of 32 MiB, and of 7 d", "later output"),
    KeyRow("run_logs_bytes", "logs:bytes", "hash", "runs with kept output", "as logs", "later output, expiry"),
    KeyRow("result", "result:<run>", "string", "runs with a result", "result_ttl", "expiry"),
    KeyRow("awaited", "awaited", "hash", "runs for whose end somebody waits", "100,000", "the end of a run, expiry"),
    KeyRow("rung", "rung:<bell>", "list", "ends that a process waits for", "10,000, and a minute", "expiry"),
    KeyRow("ended", "ended:<run>", "string", "awaited runs that ended", "an hour, or result_ttl", "expiry"),
    KeyRow("progress", "progress:<run>", "string", "runs that tell progress", "an expiry", "expiry"),
    KeyRow("commands", "commands:<replica>", "hash", "commands", "a minute", "expiry"),
    KeyRow("command", "command:<id>", "string", "commands", "ten minutes", "expiry"),
    KeyRow("event_log", "event:log", "stream", "events", "events.keep", "each entry"),
    KeyRow("event_writer", "event:writer:<id>", "string", "web processes", "ten minutes", "expiry"),
    KeyRow("plugins", "plugins", "hash", "plugins", "a week after the last change", "expiry"),
    *(
        KeyRow(f"leadership_{name}", f"leadership:<name>:{name}", kind, "names of leaderships", "those of 30 d", "expiry")
        for name, kind in zip(_LEASE, ("hash", "string", "string", "stream", "hash"), strict=True)
    ),
    KeyRow("cache_value", "cache:value:<function>#<key>", "string", "cached calls", "100,000 a function, and their ttl", "expiry, takes"),
    KeyRow("cache_take", "cache:take:<function>#<key>", "hash", "cached calls that are computed", "wait, and an hour", "its end, expiry, takes"),
    KeyRow("cache_calls", "cache:calls:<function>", "sorted set", "cached calls", "100,000", "takes, expiry"),
    KeyRow("cloudforet_emitted", "cloudforet:emitted:<run>", "string", "messages to SpaceONE", "24 h", "expiry"),
    KeyRow("cloudforet_ingested", "cloudforet:ingested", "hash", "queues of SpaceONE", "queues", "nobody"),
    KeyRow("cloudforet_aside", "cloudforet:aside:<queue>", "list", "messages set aside", "100, and 7 d", "expiry"),
)  # fmt: skip

PIECES = {row.name: tuple(re.split("<[a-z]+>", row.pattern)) for row in KEY_TABLE}
"""What is constant of each key, by its name: a value stands between one piece and the next."""


def spell(name: str, *values: str) -> str:
    """Return the key of that name without the prefix of its cluster."""
    first, *others = PIECES[name]
    return first + "".join(value + piece for value, piece in zip(values, others, strict=True))
