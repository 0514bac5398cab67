"""Scripts take members of keys that a producer's user may write through what drops those longer than any of ours."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from itertools import chain

from supervisor.store.client.preflight import PRODUCER_WRITES
from supervisor.store.key_table import KEY_TABLE
from tests.unit.store.test_key_table import LUA

READ = re.compile(
    r"(?:redis\.p?call|read|inform)\('"
    r"(SMEMBERS|SSCAN|SRANDMEMBER|HGETALL|HKEYS|HSCAN|LINDEX|ZRANGE|ZREVRANGE|ZRANGEBYSCORE|ZSCAN)', (?:keys\.)?(\w+)"
)
DROPPED = re.compile(r"ours\('\w+', (?:keys\.)?(\w+)")
WRITABLE = {
    row.name
    for row in KEY_TABLE
    if any(fnmatch(re.sub("<[a-z]+>", "x", row.pattern), pattern) for pattern in PRODUCER_WRITES)
}
OTHERWISE = {
    ("clock", "LINDEX", "list"): "`entry_of` itself",
    ("run", "ZRANGE", "dead"): "they are removed there",
    ("waiting", "ZRANGE", "later"): "its head is looked at, and taken out there",
    ("waiting", "ZRANGEBYSCORE", "later"): "they leave it there",
    ("waiting", "LINDEX", "wait"): "it leaves the list there",
    ("run", "HKEYS", "key"): "of a tally, which is for trees to write",
    ("fire_decide", "LINDEX", "key"): "of a schedule, which is for trees to write",
    ("limits", "SRANDMEMBER", "limit_slots"): "a turn that finds no slot takes them out",
    ("slots", "SRANDMEMBER", "key"): "slots, of which those that are long are taken out there",
    ("run_show", "SRANDMEMBER", "limit_slots"): "a turn that finds no slot takes them out",
    ("turn", "ZRANGE", "later"): "the next turn takes it out",
    ("queue_trim", "ZRANGE", "dead"): "they are removed there",
    ("queue_trim", "ZRANGEBYSCORE", "dead"): "they are removed there",
    ("queues_forget", "SRANDMEMBER", "woken"): "they are removed there",
    ("queue_purge", "ZRANGE", "key"): "a person asks, and they are removed there",
    ("queue_purge", "ZSCAN", "key"): "a person asks",
    ("queue_move", "ZRANGE", "from"): "a person asks, and they are removed there",
    **{("queue_fsck", command, key): "tests ask" for command, key in (
        ("HSCAN", "run"), ("HSCAN", "blocked"), ("HSCAN", "limits"), ("HSCAN", "att"), ("HKEYS", "data"), ("ZRANGE", "one"),
    )},
    ("queue_fsck_shared", "HSCAN", "limit_unique"): "a person asks",
    ("queue_fsck_shared", "SSCAN", "set"): "a person asks",
}  # fmt: skip
"""What reads members that may be of any length, and why that is no matter, by script, command and key."""
NOT_THEIRS = {"gone", "jobs", "log"}
"""Variables that are keys which no producer may write."""


def test_no_script_reads_members_of_any_length_again_and_again() -> None:
    """SMEMBERS and its like cannot cut: one name of 6 MB was in each reply until somebody removed it."""
    names = {row.name for row in KEY_TABLE}
    found = set()
    folders = [LUA.glob(f"{folder}/*.lua") for folder in ("lib", "queues", "sessions")]
    for path in [*chain(*folders), LUA / "cluster/set_read.lua"]:
        source = path.read_text("utf-8")
        dropped = set(DROPPED.findall(source))
        for command, key in READ.findall(source):
            is_theirs = key in WRITABLE if key in names else key not in NOT_THEIRS
            if is_theirs and key not in dropped:
                found.add((path.stem, command, key))
        found |= {(path.stem, *each) for each in READ.findall(source) if (path.stem, *each) in OTHERWISE}
    assert found == set(OTHERWISE)
