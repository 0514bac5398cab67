"""``identity.domain_sync``: make the table hold the tenant domains that an upstream lists.

Guarantees
    One transaction, alone among syncs: readers see the list before or after, never a mixture,
    and a run that is cut off anywhere leaves nothing. Running it again changes nothing more.
    Domains that the source no longer lists are disabled, never deleted; those that come back
    are enabled. Domains disabled by hand stay disabled. A list that would disable more than
    a share of them is refused: it is rather half a list than half of the tenants gone.

Does not guarantee
    Which of two concurrent runs writes last, if the upstream changed between their readings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from sqlalchemy import Connection, Table, and_, delete, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from supervisor.operations import slices
from tenure import Context, job
from tenure.jobs.identity.changes import Bound, Changes, KnownDomain, decide
from tenure.jobs.identity.database import DEFAULT, DatabaseArgument, alone, open_database
from tenure.jobs.identity.models import DISABLED, SOURCE_CHARS, domains, endpoints
from tenure.jobs.identity.source import SourceRefusedError, UpstreamDomain, load, source_label
from tenure.jobs.references import resolve

MAX_DISABLED = "10%"
BATCH_ROWS = 500  # eight columns each stay far below the 32766 variables of SQLite

Row = Mapping[str, Any]

_NATIVE: dict[str, Callable[[Table], Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class SyncResult(TypedDict):
    """Result of a sync: counts of the changed domains, and of their endpoints."""

    created: int
    updated: int
    unchanged: int
    disabled: int
    enabled: int
    endpoints_added: int
    endpoints_removed: int


@job("identity.domain_sync", timeout=600.0)
def domain_sync(
    ctx: Context,
    *,
    source: str,
    database: DatabaseArgument = DEFAULT,
    source_token: str | None = None,
    source_name: str | None = None,
    ca_file: str | None = None,
    allow_empty: bool = False,
    max_disabled: str | int = MAX_DISABLED,
    ignore: list[str] | None = None,
) -> SyncResult:
    """Read ``source`` and make the table agree with it.

    Args:
        ctx: the run's context.
        source: http(s) URL or path of a JSON document, ``{"domains": […]}`` or the bare list.
        database: URL without a password, or ``env:NAME`` or ``file:/path`` of any.
        source_token: ``env:NAME`` or ``file:/path`` of a bearer token for the source.
        source_name: who owns the domains; default: the source, without its query.
        ca_file: PEM file of the authorities to trust; default: those of the system.
        allow_empty: whether a source that lists nothing is believed; ``max_disabled`` does not apply to it.
        max_disabled: how many domains one sync may disable: a count, or a share of the source's enabled domains
            in percent, rounded up.
        ignore: fields beside the domains that say nothing of pages though they are called so, ``meta.total_users``.

    Raises:
        SourceRefusedError: the source cannot be read or believed.
        TooManyDisabledError: it no longer lists more domains than ``max_disabled``.
        SourceConflictError: it lists a domain that another source owns.
    """
    bound = Bound.parse(max_disabled)
    owner = source_name or source_label(source)
    if len(owner) > SOURCE_CHARS:
        raise SourceRefusedError(f"source_name must have at most {SOURCE_CHARS} characters, it has {len(owner)}")
    token = resolve("source_token", source_token) if source_token is not None else None
    upstream = load(source, token=token, ca_file=ca_file, allow_empty=allow_empty, ignore=ignore or ())
    with open_database(database) as engine, alone(engine) as connection:
        result = sync(connection, owner, upstream, now_ms=ctx.clock.wall_ms(), bound=bound)
    if result["disabled"]:
        ctx.log.warning("domains_disabled", source=owner, count=result["disabled"])
    ctx.log.info("domains_synced", source=owner, **result)
    return result


def sync(
    connection: Connection, source: str, upstream: Sequence[UpstreamDomain], *, now_ms: int, bound: Bound
) -> SyncResult:
    """Carry out ``domain_sync``, within the transaction of ``connection``."""
    known = _known(connection, source, upstream)
    changes = decide(source, upstream, known)
    if upstream:  # an empty list came this far only because the caller believes it
        bound.refuse(source, changes, known)
    _write(connection, source, changes, now_ms)
    for batch in slices([domain.id for domain in upstream], BATCH_ROWS):
        connection.execute(update(domains).where(domains.c.id.in_(batch)).values(last_seen=now_ms))
    added, removed = _sync_endpoints(connection, source, upstream)
    return SyncResult(
        created=changes.created,
        updated=changes.updated,
        unchanged=changes.unchanged,
        disabled=len(changes.vanished),
        enabled=changes.enabled,
        endpoints_added=added,
        endpoints_removed=removed,
    )


def _known(connection: Connection, source: str, upstream: Sequence[UpstreamDomain]) -> list[KnownDomain]:
    columns = select(*(domains.c[name] for name in ("id", "name", "tenant", "state", "source", "vanished")))
    rows = list(connection.execute(columns.where(domains.c.source == source)))
    for batch in slices(upstream, BATCH_ROWS):
        shares = or_(domains.c.id.in_([one.id for one in batch]), domains.c.name.in_([one.name for one in batch]))
        rows += connection.execute(columns.where(domains.c.source != source, shares))
    return [KnownDomain(*row) for row in rows]


def _write(connection: Connection, source: str, changes: Changes, now_ms: int) -> None:
    for domain_id, name in changes.released:
        connection.execute(update(domains).where(domains.c.id == domain_id).values(name=name))
    rows = [
        {
            "id": one.id,
            "name": one.name,
            "tenant": one.tenant,
            "state": state,
            "source": source,
            "first_seen": now_ms,
            "last_seen": now_ms,
            "vanished": None,
        }
        for one, state in changes.written
    ]
    upsert(connection, domains, rows, key=["id"], set_=["name", "tenant", "state", "last_seen", "vanished"])
    for batch in slices(changes.vanished, BATCH_ROWS):
        gone = update(domains).where(domains.c.id.in_(batch))
        connection.execute(gone.values(state=DISABLED, vanished=now_ms))


def _sync_endpoints(connection: Connection, source: str, upstream: Sequence[UpstreamDomain]) -> tuple[int, int]:
    """Return how many endpoints were added and removed; those of other origin, and unmentioned ones, stay."""
    added = removed = 0
    for batch in slices([domain for domain in upstream if domain.endpoints is not None], BATCH_ROWS):
        wanted = {(domain.id, url): None for domain in batch for url in domain.endpoints or ()}  # in order, each once
        found = connection.execute(
            select(endpoints.c.domain_id, endpoints.c.url, endpoints.c.id, endpoints.c.source).where(
                endpoints.c.domain_id.in_([domain.id for domain in batch])
            )
        ).all()
        present = {(row.domain_id, row.url) for row in found}
        new = [
            {"domain_id": domain_id, "url": url, "source": source}
            for domain_id, url in wanted
            if (domain_id, url) not in present
        ]
        gone = [row.id for row in found if row.source == source and (row.domain_id, row.url) not in wanted]
        upsert(connection, endpoints, new, key=["domain_id", "url"], set_=[])
        for ids in slices(gone, BATCH_ROWS):
            connection.execute(delete(endpoints).where(endpoints.c.id.in_(ids)))
        added += len(new)
        removed += len(gone)
    return added, removed


def upsert(
    connection: Connection, table: Table, rows: Sequence[Row], *, key: Sequence[str], set_: Sequence[str]
) -> None:
    """Insert ``rows``; where ``key`` exists already, set the columns ``set_`` instead, or nothing if it names none."""
    native = _NATIVE.get(connection.dialect.name)
    for batch in slices(rows, BATCH_ROWS):
        if native is None:
            upsert_portably(connection, table, batch, key=key, set_=set_)
            continue
        statement = native(table).values([dict(row) for row in batch])
        if set_:
            new = {name: statement.excluded[name] for name in set_}
            statement = statement.on_conflict_do_update(index_elements=list(key), set_=new)
        else:
            statement = statement.on_conflict_do_nothing(index_elements=list(key))
        connection.execute(statement)


def upsert_portably(
    connection: Connection, table: Table, rows: Sequence[Row], *, key: Sequence[str], set_: Sequence[str]
) -> None:
    """Do the same in any database, row by row: exact as long as nobody else inserts the same key meanwhile."""
    for row in rows:
        matches = and_(*(table.c[name] == row[name] for name in key))
        # Setting the key to itself finds the row when there is nothing else to set.
        values = {name: row[name] for name in set_ or key}
        if connection.execute(update(table).where(matches).values(values)).rowcount == 0:
            connection.execute(insert(table).values(dict(row)))
