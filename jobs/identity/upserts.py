"""Write rows whether or not they exist: the database's own way where it has one, else the portable one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, and_, insert, update
from sqlalchemy.dialects import postgresql, sqlite

BATCH_ROWS = 500  # eight columns each stay far below the 32766 variables of SQLite

Row = Mapping[str, Any]
T = TypeVar("T")

_NATIVE: dict[str, Callable[[Table], Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def batches(items: Sequence[T], size: int = BATCH_ROWS) -> Iterator[Sequence[T]]:
    """Yield ``items`` in pieces of at most ``size``."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def upsert(
    connection: Connection, table: Table, rows: Sequence[Row], *, key: Sequence[str], set_: Sequence[str]
) -> None:
    """Insert ``rows``; where ``key`` exists already, set the columns ``set_`` instead, or nothing if it names none."""
    native = _NATIVE.get(connection.dialect.name)
    for batch in batches(rows):
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
