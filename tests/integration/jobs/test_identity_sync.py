"""identity.domain_sync on real databases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, create_engine, insert, select, update
from sqlalchemy.pool import StaticPool

from tenure import Context
from tenure.jobs.identity import domain_sync
from tenure.jobs.identity.changes import Bound, SourceConflictError, TooManyDisabledError
from tenure.jobs.identity.domain_sync import sync, upsert_portably
from tenure.jobs.identity.models import DISABLED, ENABLED, domains, endpoints, metadata, tokens
from tenure.jobs.identity.source import SourceRefusedError, UpstreamDomain
from tests.integration.jobs.processes import run_together

pytestmark = pytest.mark.xdist_group("databases")

UNCHANGING = ("id", "name", "tenant", "state", "source", "first_seen")


def listing(path: Path, *names: str, **fields: Any) -> str:
    """Write a source that lists domains by these names; return its path."""
    path.write_text(json.dumps({"domains": [{"id": name.lower(), "name": name, **fields} for name in names]}))
    return str(path)


def table(engine: Engine, *columns: str) -> list[tuple[Any, ...]]:
    """Return the domains in order."""
    with engine.connect() as connection:
        rows = connection.execute(select(*(domains.c[name] for name in columns)).order_by(domains.c.id))
        return [tuple(row) for row in rows]


def urls(engine: Engine) -> list[tuple[str, str]]:
    """Return the endpoints in order."""
    with engine.connect() as connection:
        rows = connection.execute(select(endpoints.c.domain_id, endpoints.c.url).order_by(*endpoints.c))
        return sorted(tuple(row) for row in rows)


def test_a_sync_makes_the_table_agree_with_its_source(
    ctx: Context, database: str, engine: Engine, tmp_path: Path
) -> None:
    """Creating, updating, disabling and enabling, each counted."""
    source = tmp_path / "source.json"
    arguments: dict[str, Any] = {"database": database, "source": str(source)}

    listing(source, "A", "B", "C", tenant="t1")
    assert domain_sync(ctx, **arguments)["created"] == 3
    assert domain_sync(ctx, **arguments)["unchanged"] == 3
    listing(source, "A", "C", tenant="t2")
    with structlog.testing.capture_logs() as lines:
        assert domain_sync(ctx, **arguments) == {
            "created": 0, "updated": 2, "unchanged": 0, "disabled": 1, "enabled": 0,
            "endpoints_added": 0, "endpoints_removed": 0,
        }  # fmt: skip
    assert [(line["count"], line["log_level"]) for line in lines if line["event"] == "domains_disabled"] == [
        (1, "warning")
    ]
    assert table(engine, "id", "tenant", "state") == [
        ("a", "t2", ENABLED), ("b", "t1", DISABLED), ("c", "t2", ENABLED),
    ]  # fmt: skip
    listing(source, "A", "B", "C", tenant="t2")
    result = domain_sync(ctx, **arguments)
    assert (result["enabled"], result["unchanged"], result["updated"]) == (1, 2, 1)
    assert {row[0] for row in table(engine, "state")} == {ENABLED}


@pytest.mark.share(2)
def test_endpoints_follow_their_domain(ctx: Context, database: str, engine: Engine, tmp_path: Path) -> None:
    """Listed ones are added and removed; what was registered by hand, and what is not mentioned, stays."""
    source = tmp_path / "source.json"

    def synced(**fields: Any) -> tuple[int, int]:
        result = domain_sync(ctx, database=database, source=listing(source, "A", **fields))
        return result["endpoints_added"], result["endpoints_removed"]

    assert synced(endpoints=["http://1/", "http://2/", "http://2/"]) == (2, 0)
    assert synced(endpoints=["http://2/", "http://1/"]) == (0, 0)
    with engine.begin() as connection:
        connection.execute(insert(endpoints).values(domain_id="a", url="http://by-hand/"))
        connection.execute(update(endpoints).where(endpoints.c.url == "http://2/").values(state="FAILING", failures=3))
    assert synced(endpoints=["http://2/", "http://3/", "http://by-hand/"]) == (1, 1)
    assert synced() == (0, 0)
    assert urls(engine) == [("a", "http://2/"), ("a", "http://3/"), ("a", "http://by-hand/")]
    assert synced(endpoints=[]) == (0, 2)
    assert urls(engine) == [("a", "http://by-hand/")]


@pytest.mark.share(2)
@pytest.mark.parametrize("batch", [50, pytest.param(500, marks=pytest.mark.long)])
def test_more_domains_than_a_batch_holds(
    ctx: Context, database: str, engine: Engine, tmp_path: Path, *, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements are bounded; the sync is not cut at their bound."""
    monkeypatch.setitem(sync.__globals__, "BATCH_ROWS", batch)
    count = 2 * batch + batch // 5
    names = [f"D{number:05}" for number in range(count)]
    source = tmp_path / "source.json"

    first = domain_sync(ctx, database=database, source=listing(source, *names, endpoints=["http://1/", "http://2/"]))
    again = domain_sync(ctx, database=database, source=listing(source, *names, endpoints=["http://2/"]))
    fewer = domain_sync(ctx, database=database, source=listing(source, *names[:5]), max_disabled="100%")

    assert (first["created"], first["endpoints_added"]) == (count, 2 * count)
    assert (again["unchanged"], again["endpoints_removed"]) == (count, count)
    assert (fewer["unchanged"], fewer["disabled"]) == (5, count - 5)


def test_names_are_swapped_under_a_unique_index(ctx: Context, database: str, engine: Engine, tmp_path: Path) -> None:
    """And a domain made anew under an old name takes it over."""
    source = tmp_path / "source.json"
    for names in ({"a": "A", "b": "B", "c": "C"}, {"a": "B", "b": "A", "d": "C"}):
        source.write_text(json.dumps([{"id": one, "name": name} for one, name in names.items()]))
        domain_sync(ctx, database=database, source=str(source))

    assert table(engine, "id", "name", "state") == [
        ("a", "B", ENABLED), ("b", "A", ENABLED), ("c", "C~c", DISABLED), ("d", "C", ENABLED),
    ]  # fmt: skip


@pytest.mark.share(2)
@pytest.mark.parametrize("document", ["", "{}", "[]", '{"domains": []}', '[{"id": "a"}]', "<html>error</html>"])
def test_a_source_that_cannot_be_believed_changes_nothing(
    ctx: Context, database: str, engine: Engine, tmp_path: Path, document: str
) -> None:
    """An upstream that fails must never disable every tenant."""
    source = tmp_path / "source.json"
    domain_sync(ctx, database=database, source=listing(source, "A", "B"))
    before = table(engine, *domains.c.keys())
    source.write_text(document)

    with pytest.raises(SourceRefusedError):
        domain_sync(ctx, database=database, source=str(source))

    assert table(engine, *domains.c.keys()) == before


def test_an_empty_source_is_believed_when_asked_for(
    ctx: Context, database: str, engine: Engine, tmp_path: Path
) -> None:
    """The last tenant leaves too, one day."""
    source = tmp_path / "source.json"
    domain_sync(ctx, database=database, source=listing(source, "A", "B"))

    result = domain_sync(ctx, database=database, source=listing(source), allow_empty=True)

    assert result["disabled"] == 2
    assert table(engine, "state") == [(DISABLED,), (DISABLED,)]


@pytest.mark.share(2)
def test_a_sync_disables_no_more_than_its_share(ctx: Context, engine: Engine, database: str, tmp_path: Path) -> None:
    """A first page, or half a list, must not disable the other tenants; an empty list has a switch of its own."""
    source = tmp_path / "source.json"
    names = [f"D{number:03}" for number in range(500)]

    def synced(listed: int, **arguments: Any) -> int:
        return domain_sync(ctx, database=database, source=listing(source, *names[:listed]), **arguments)["disabled"]

    synced(500)
    before = table(engine, *UNCHANGING, "vanished")
    for listed, arguments, bound in ((1, {}, "10% (50)"), (449, {}, "10% (50)"), (499, {"max_disabled": 0}, "0")):
        with pytest.raises(TooManyDisabledError) as refused:
            synced(listed, **arguments)
        assert f"{500 - listed} of its 500 enabled domains, and max_disabled allows {bound};" in str(refused.value)
        assert table(engine, *UNCHANGING, "vanished") == before
    assert synced(450) == 50
    assert synced(5, max_disabled=445) == 445
    assert synced(0, allow_empty=True) == 5


@pytest.mark.share(2)
def test_sources_do_not_touch_each_others_domains(ctx: Context, database: str, engine: Engine, tmp_path: Path) -> None:
    """Nor can one claim what is another's; the run that tries writes nothing at all."""
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    domain_sync(ctx, database=database, source=listing(first, "A", "B"))
    domain_sync(ctx, database=database, source=listing(second, "C"))
    before = table(engine, *UNCHANGING)

    with pytest.raises(SourceConflictError, match="belongs to source"):
        domain_sync(ctx, database=database, source=listing(second, "D", "C", "A"))

    assert table(engine, *UNCHANGING) == before
    moved = domain_sync(ctx, database=database, source=listing(tmp_path / "moved.json", "C"), source_name=str(second))
    assert moved["unchanged"] == 1


def test_rows_that_refer_to_a_domain_survive_its_absence(
    ctx: Context, database: str, engine: Engine, tmp_path: Path
) -> None:
    """Disabled, not deleted: its tokens and endpoints are there when it comes back."""
    source = tmp_path / "source.json"
    domain_sync(ctx, database=database, source=listing(source, "A", "B", endpoints=["http://1/"]))
    with engine.begin() as connection:
        connection.execute(insert(tokens).values(domain_id="a", hash="h", created=1))

    domain_sync(ctx, database=database, source=listing(source, "B"))

    with engine.connect() as connection:
        assert connection.execute(select(tokens.c.domain_id)).scalars().all() == ["a"]
    assert ("a", "http://1/") in urls(engine)


SYNC = """
import sys
from tenure.jobs.identity import domain_sync
from tenure import Context
database, *sources = sys.argv[1:]
for _ in range(3):
    for source in sources:
        domain_sync(Context(run_id="r", job="j"), source=source, database=database, source_name="upstream")
"""


@pytest.mark.share(2)
def test_concurrent_syncs_leave_one_list_or_the_other(database: str, tmp_path: Path) -> None:
    """At-least-once means two at a time, now and then; they start on a database that does not exist yet."""
    lists = {
        "one": {"a": "A", "b": "B", "c": "C"},
        "two": {"b": "A", "a": "B", "d": "C"},
    }
    for name, ids in lists.items():
        document = [{"id": one, "name": domain, "endpoints": [f"http://{name}/"]} for one, domain in ids.items()]
        (tmp_path / name).write_text(json.dumps(document))
    orders = [("one", "two"), ("two", "one"), ("one", "two")]
    assert (
        run_together(SYNC, tmp_path, [[database, *(str(tmp_path / name) for name in order)] for order in orders]) == []
    )

    engine = create_engine(database)
    enabled = {row[0]: row[1] for row in table(engine, "id", "name", "state") if row[2] == ENABLED}
    assert enabled in lists.values()
    last = next(name for name, ids in lists.items() if ids == enabled)
    assert {url for domain_id, url in urls(engine) if domain_id in enabled} == {f"http://{last}/"}
    engine.dispose()


UPSTREAM = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("ABCDE"), min_size=1).map(
    lambda names: [
        UpstreamDomain(one, name, name * 2, (f"http://{name}/",))
        for name, one in {name: one for one, name in names.items()}.items()
    ]
)


@given(st.lists(UPSTREAM, min_size=1, max_size=6))
def test_a_second_sync_of_the_same_list_changes_nothing(history: list[list[UpstreamDomain]]) -> None:
    """Whatever was synced before, in SQL as in the model: idempotence is what makes a repeated run harmless."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    metadata.create_all(engine)
    with engine.begin() as connection:
        for moment, upstream in enumerate(history):
            sync(connection, "s", upstream, now_ms=moment, bound=Bound())
        columns = [domains.c[name] for name in (*UNCHANGING, "vanished")]
        before = connection.execute(select(*columns).order_by(domains.c.id)).all()
        ends = connection.execute(select(endpoints).order_by(endpoints.c.id)).all()

        result = sync(connection, "s", history[-1], now_ms=99, bound=Bound())

        assert {**result, "unchanged": 0} == dict.fromkeys(result, 0)
        assert connection.execute(select(*columns).order_by(domains.c.id)).all() == before
        assert connection.execute(select(endpoints).order_by(endpoints.c.id)).all() == ends
    engine.dispose()


def test_the_portable_upsert_does_what_the_native_ones_do(engine: Engine) -> None:
    """For databases that have neither's syntax."""
    row = {"id": "a", "name": "A", "tenant": "t", "state": ENABLED, "source": "s", "first_seen": 1, "last_seen": 1}
    endpoint = {"domain_id": "a", "url": "http://1/", "source": "s"}
    with engine.begin() as connection:
        upsert_portably(connection, domains, [row], key=["id"], set_=["name"])
        upsert_portably(connection, domains, [{**row, "name": "A2", "first_seen": 2}], key=["id"], set_=["name"])
        for _ in range(2):
            upsert_portably(connection, endpoints, [endpoint], key=["domain_id", "url"], set_=[])

    assert table(engine, "id", "name", "first_seen") == [("a", "A2", 1)]
    assert urls(engine) == [("a", "http://1/")]
