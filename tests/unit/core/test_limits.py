"""The keys of limits: what a pattern becomes, and how it travels."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.errors import ArgumentsError
from supervisor.core.jobs.limits import Limits, limits_of
from supervisor.core.model import Envelope, Kind, Template
from supervisor.store.wire.envelope import pack, unpack
from tests.kit.tables import table

KEY = r"[A-Za-z0-9._:/@#-]{1,128}"
HEADER = re.compile(rf"(\[(u{KEY})?(;?c[1-9][0-9]*:{KEY})?(;?r[1-9][0-9]*/[1-9][0-9]*:{KEY})?\])?")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
PATTERNS = st.lists(st.sampled_from(["{a}", "{b}", "x", ":", "{a}-", "ü", "]", ";"]), max_size=6).map("".join)
JOBS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}", fullmatch=True)


def template(**fields: Any) -> Template:
    """Return a template of a job with one tenant."""
    return Template(**{"job": "mail.send", "kind": Kind.ASYNC, "args": {"tenant": "acme", "n": 7}} | fields)


@table(
    ("fields", "header"),
    [
        ({}, ""),
        ({"unique": "{tenant}"}, "[umail.send:acme]"),
        ({"unique": "{tenant}/{n}"}, "[umail.send:acme/7]"),
        ({"concurrency": "{tenant}", "concurrency_max": 3}, "[c3:mail.send:acme]"),
        ({"concurrency_max": 1}, "[c1:mail.send:]"),
        ({"concurrency": "{tenant}"}, ""),
        ({"rate": "{n}", "rate_count": 5, "rate_per_ms": 60_000}, "[r5/60000:mail.send:7]"),
        ({"rate_count": 5}, ""),
        (
            {"unique": "u", "concurrency": "c", "concurrency_max": 2, "rate": "r", "rate_count": 1, "rate_per_ms": 9},
            "[umail.send:u;c2:mail.send:c;r1/9:mail.send:r]",
        ),
    ],
)
def test_a_header_has_a_part_for_each_limit_that_is_set(fields: dict[str, Any], header: str) -> None:
    """The scripts read it: a limit without a number is none, and one without a pattern is the job's own."""
    assert limits_of(template(**fields)).header() == header


def test_all_arguments_make_one_key_in_whatever_order_they_are_given() -> None:
    """Two producers that build the same arguments differently mean the same run."""
    one = limits_of(template(unique="*", args={"a": 1, "b": {"x": 1, "y": 2}}))
    other = limits_of(template(unique="*", args={"b": {"y": 2, "x": 1}, "a": 1}))
    assert one == other
    assert one != limits_of(template(unique="*", args={"a": 1, "b": {"x": 1, "y": 3}}))
    assert re.fullmatch(r"mail\.send:#[0-9a-f]{32}", one.unique)


def test_a_value_that_does_not_fit_becomes_its_digest() -> None:
    """A key never holds what ends it, and equal values still share it."""
    keys = {
        limits_of(template(unique="{tenant}", args={"tenant": value})).unique for value in ("a]b", "a;b", "x" * 200)
    }
    assert len(keys) == 3
    assert all(re.fullmatch(r"mail\.send:#[0-9a-f]{32}", key) for key in keys)


@given(job=JOBS, other=JOBS, value=st.text("ab:#-", max_size=6), tail=st.text("ab:-", max_size=6))
def test_no_argument_makes_a_key_of_another_job(job: str, other: str, value: str, tail: str) -> None:
    """Who may enqueue ``bill`` alone holds up, and replaces, no run of ``bill:eu`` by an argument ``eu:7``."""
    for foreign, chosen in ((other, value), (f"{job}:{tail}"[:128], f"{tail}:{value}")):
        own = limits_of(template(job=job, unique="{k}", args={"k": chosen}))
        assert foreign == job or own != limits_of(template(job=foreign, unique="{k}", args={"k": value}))


def test_a_missing_argument_is_named() -> None:
    """Whoever wrote the pattern learns what the run has instead."""
    with pytest.raises(ArgumentsError, match="names 'user', which this run does not have; it has n, tenant"):
        limits_of(template(unique="{user}"))


@given(job=JOBS, a=VALUES, b=VALUES, patterns=st.tuples(PATTERNS | st.just("*"), PATTERNS), most=st.integers(0, 10**6))
def test_whatever_the_arguments_the_header_can_be_read_and_the_envelope_comes_back(
    job: str, a: Any, b: Any, patterns: tuple[str, str], most: int
) -> None:
    """Header and envelope are cut apart by scripts that know the alphabet only."""
    unique, concurrency = patterns
    fields = {"unique": unique, "concurrency": concurrency, "concurrency_max": most, "args": {"a": a, "b": b}}
    limited = template(job=job, rate_count=most, rate_per_ms=1000, rate=unique, **fields)
    limits = limits_of(limited)
    assert HEADER.fullmatch(limits.header())
    assert limits == limits_of(limited)

    envelope = Envelope(id="r", template=limited)
    data = pack(envelope).data
    assert data.startswith(b"a1" + limits.header().encode() + b"{")
    assert unpack(data) == envelope


def test_no_limits_cost_no_object() -> None:
    """Most runs have none: packing must not pay for the feature."""
    assert limits_of(template()) is limits_of(template(args={})) == Limits()
