"""What a sync does about a list: shown on a model of the table that refuses two domains of one name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.jobs.identity.changes import Bound, Changes, KnownDomain, SourceConflictError, decide
from tenure.jobs.identity.models import DISABLED, ENABLED
from tenure.jobs.identity.source import UpstreamDomain
from tests.kit.tables import table

Table = dict[str, KnownDomain]


def listed(**names: str) -> list[UpstreamDomain]:
    """Return an upstream list: id to name."""
    return [UpstreamDomain(id=one, name=name, tenant="t") for one, name in names.items()]


def put(table: Table, domain: KnownDomain) -> None:
    """Write a row, as a database with a unique index on the name would."""
    assert all(other.name != domain.name for other in table.values() if other.id != domain.id), "name is taken"
    table[domain.id] = domain


def synced(table: Table, upstream: list[UpstreamDomain], source: str = "s") -> tuple[Table, Changes]:
    """Return the table after a sync, and what the sync decided."""
    changes = decide(source, upstream, list(table.values()))
    table = dict(table)
    for domain_id, name in changes.released:
        put(table, replace(table[domain_id], name=name))
    for one, state in changes.written:
        put(table, KnownDomain(one.id, one.name, one.tenant, state, source, None))
    for domain_id in changes.vanished:
        put(table, replace(table[domain_id], state=DISABLED, vanished=1))
    return table, changes


def counts(changes: Changes) -> tuple[int, int, int, int, int]:
    """Return created, updated, unchanged, disabled, enabled."""
    return changes.created, changes.updated, changes.unchanged, len(changes.vanished), changes.enabled


def test_the_first_sync_creates_and_the_second_does_nothing() -> None:
    """Most syncs find nothing to do, and must say so."""
    table, first = synced({}, listed(a="A", b="B"))
    _, second = synced(table, listed(a="A", b="B"))

    assert counts(first) == (2, 0, 0, 0, 0)
    assert counts(second) == (0, 0, 2, 0, 0)
    assert second.written == []


def test_what_vanishes_is_disabled_and_what_comes_back_enabled() -> None:
    """Its row, and with it everything that refers to it, stays."""
    table, _ = synced({}, listed(a="A", b="B"))
    table, gone = synced(table, listed(a="A"))
    assert (counts(gone), table["b"].state) == ((0, 0, 1, 1, 0), DISABLED)
    table, still_gone = synced(table, listed(a="A"))
    assert counts(still_gone) == (0, 0, 1, 0, 0)
    table, back = synced(table, listed(a="A", b="B"))
    assert (counts(back), table["b"].state) == ((0, 0, 1, 0, 1), ENABLED)


def test_what_somebody_disabled_stays_disabled() -> None:
    """Listed or not, and after it was away: the upstream does not know why."""
    table, _ = synced({}, listed(a="A"))
    table["a"] = replace(table["a"], state=DISABLED)
    for upstream in (listed(a="A2"), listed(b="B"), listed(a="A3", b="B")):
        table, _ = synced(table, upstream)
        assert table["a"].state == DISABLED
    assert table["a"].name == "A3"


def test_names_can_be_swapped_and_passed_on() -> None:
    """At no moment do two rows hold one name, which the unique index would refuse."""
    table, _ = synced({}, listed(a="A", b="B", c="C"))
    table, changes = synced(table, listed(a="B", b="C", c="A"))

    assert {one.id: one.name for one in table.values()} == {"a": "B", "b": "C", "c": "A"}
    assert counts(changes) == (0, 3, 0, 0, 0)


def test_a_name_that_is_used_again_leaves_its_first_owner() -> None:
    """Deleted and made anew upstream: another id, the same name. The old row is kept under another."""
    table, _ = synced({}, listed(a="A"))
    table, changes = synced(table, listed(b="A"))

    assert (table["a"].name, table["a"].state) == ("A~a", DISABLED)
    assert (table["b"].name, table["b"].state) == ("A", ENABLED)
    assert counts(changes) == (1, 0, 0, 1, 0)


@pytest.mark.parametrize("upstream", [listed(x="A"), listed(a="X")])
def test_the_domain_of_another_source_is_not_touched(upstream: list[UpstreamDomain]) -> None:
    """By id or by name: two upstreams that claim one domain would take it from each other for ever."""
    table, _ = synced({}, listed(a="A"), source="first")

    with pytest.raises(SourceConflictError, match=r"'.' \(id .\) belongs to source first; .* same source_name"):
        synced(table, upstream, source="second")


UPSTREAMS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("ABCDEFG")).map(
    lambda names: listed(**{one: name for name, one in {name: one for one, name in names.items()}.items()})
)


@given(st.lists(UPSTREAMS, min_size=1, max_size=8))
def test_after_any_history_the_table_is_what_was_listed_last(history: list[list[UpstreamDomain]]) -> None:
    """And deciding again finds nothing left to do: the sync is idempotent, whatever happened before."""
    table: Table = {}
    for upstream in history:
        table, changes = synced(table, upstream)
        assert counts(changes)[0] + counts(changes)[2] <= len(upstream)

    last = {one.id: one.name for one in history[-1]}
    assert {one.id: one.name for one in table.values() if one.state == ENABLED} == last
    repeated, nothing = synced(table, history[-1])
    assert repeated == table
    assert counts(nothing) == (0, 0, len(last), 0, 0)
    assert nothing.released == nothing.written == nothing.vanished == []


@table(
    ("value", "enabled", "allowed"),
    [
        ("10%", 500, 50),
        ("10%", 3, 1),
        ("10%", 0, 0),
        ("0%", 9, 0),
        ("0.1 %", 10, 1),
        ("100%", 7, 7),
        (0, 9, 0),
        (5, 3, 5),
    ],
)
def test_a_share_is_rounded_up_and_a_count_is_taken_as_it_is(value: str | int, enabled: int, allowed: int) -> None:
    """One of three tenants may leave without anybody having to say so."""
    assert Bound.parse(value).allowed(enabled) == allowed


@table("value", ["10", "ten", "101%", "-1%", -1, True, "", "1e1%", 0.1])
def test_a_bound_that_is_neither_count_nor_share_is_refused(value: Any) -> None:
    """A typo must not read as no bound."""
    with pytest.raises(ValueError, match="max_disabled must be a count from 0 on, or a share"):
        Bound.parse(value)
