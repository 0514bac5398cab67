"""Open the identity database that a job names, with its tables in place.

Guarantees
    Any number of processes may open a new database at once: one makes the tables, all see them.
    SQLite runs in WAL mode, so readers never wait; every transaction takes the write lock when it
    begins, because a read that turns into a write later fails at once if somebody wrote between
    (https://www.sqlite.org/isolation.html).
    A URL with a password in it is refused: arguments lie in the queue. Name it by reference.

    Tables that exist are used as they are, views of their names too; one that lacks a column is refused.

Does not guarantee
    Migrations.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from tenure.jobs.identity.models import metadata
from tenure.jobs.references import is_reference, resolve

DatabaseArgument = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?:env:|file:|(?!\w[\w+.-]*://[^:/@]*:[^@]*@)(?!.*[?&]password=))",
        extra={"remedy": "it must hold no password: arguments lie in the queue; write env:NAME or file:/path"},
    ),
]
"""A URL without a password, or a reference to any: checked where it is written, before it lies in the queue."""

DEFAULT = "sqlite:///.tenure/identity.db"
LOCK_WAIT_MS = 30_000
CONNECT_TIMEOUT_S = 10
_ADVISORY_ALONE = 0x7E4E_0001  # any number that nothing else in the database uses
_ADVISORY_LOCK = text("SELECT pg_advisory_xact_lock(:key)")
_READS = "tenure_reads"


class DatabaseRefusedError(ValueError):
    """The ``database`` argument names no database that can be opened."""


@contextmanager
def open_database(database: str) -> Iterator[Engine]:
    """Yield an engine for ``database``: a URL without a password, or ``env:NAME`` or ``file:/path`` of any URL.

    Raises:
        DatabaseRefusedError: names the reason, and never shows a password.
    """
    url = _url(database)
    engine = _engine(url)
    try:
        _ensure_tables(engine, url)
        yield engine
    finally:
        engine.dispose()


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Yield a connection in one transaction that only reads: it waits for no writer."""
    with engine.execution_options(**{_READS: True}).begin() as connection:
        yield connection


@contextmanager
def alone(engine: Engine) -> Iterator[Connection]:
    """Yield a connection in one transaction, alone among those opened here. SQLite has one writer anyway."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(_ADVISORY_LOCK, {"key": _ADVISORY_ALONE})
        yield connection


def _url(database: str) -> URL:
    value = resolve("database", database) if is_reference(database) else database
    try:
        url = make_url(value)
    except ArgumentError:
        shown = repr(database) if is_reference(database) or "@" not in database else "the one given"
        raise DatabaseRefusedError(
            f"database {shown} is no URL; write sqlite:///relative/path.db or postgresql+psycopg://user@host/name"
        ) from None
    if not is_reference(database) and (url.password is not None or "password" in url.query):
        raise DatabaseRefusedError(
            f"database {url.set(query={}).render_as_string(hide_password=True)} holds a password, and arguments lie "
            f"in the queue; put the URL into a variable or file of the worker and write env:NAME or file:/path"
        )
    return url.set(drivername="postgresql") if url.drivername == "postgres" else url


def _engine(url: URL) -> Engine:
    backend = url.get_backend_name()
    timeouts = {"connect_timeout": CONNECT_TIMEOUT_S} if backend == "postgresql" else {}
    try:
        # A run holds one connection for many statements, so a pool would only keep it open afterwards.
        engine = create_engine(url, poolclass=NullPool, hide_parameters=True, connect_args=timeouts)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise DatabaseRefusedError(
            f"database needs a driver for {url.drivername}, which is not installed here: {error}"
        ) from None
    if backend == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # BEGIN is ours to write, below
    cursor = connection.cursor()
    for pragma in (f"busy_timeout = {LOCK_WAIT_MS}", "foreign_keys = ON", "synchronous = NORMAL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    only_reads = connection.get_execution_options().get(_READS, False)
    connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")


def _ensure_tables(engine: Engine, url: URL) -> None:
    if url.get_backend_name() == "sqlite":
        with _sqlite_file_locked(url):
            _use_wal(engine)
            if not _is_complete(engine):
                metadata.create_all(engine)
    elif not _is_complete(engine):
        _create_tables(engine)


def _create_tables(engine: Engine) -> None:
    try:
        with alone(engine) as connection:
            metadata.create_all(connection)
    except DBAPIError:
        if not _is_complete(engine):  # else another replica made them between our look and our CREATE
            raise


def _is_complete(engine: Engine) -> bool:
    """Return whether every table, or a view of its name, is there.

    Raises:
        DatabaseRefusedError: one is there, and is another program's.
    """
    with reading(engine) as connection:
        inspector = inspect(connection)
        there = [table for table in metadata.sorted_tables if inspector.has_table(table.name)]
        for table in there:
            missing = set(table.columns.keys()) - {each["name"] for each in inspector.get_columns(table.name)}
            if missing:
                raise DatabaseRefusedError(
                    f"table {table.name} is there without the columns {', '.join(sorted(missing))}, so it is another "
                    f"program's; name another database or schema, or make views as docs/jobs.md describes"
                )
        return len(there) == len(metadata.tables)


@contextmanager
def _sqlite_file_locked(url: URL) -> Iterator[None]:
    """Hold a lock beside the file: switching to WAL while others open it fails, and heeds no busy_timeout."""
    if not url.database or url.database == ":memory:" or "uri" in url.query:
        raise DatabaseRefusedError("database must be a file for SQLite: sqlite:///relative/path.db")
    file = Path(url.database)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DatabaseRefusedError(f"database {file}: its folder cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        file.touch(mode=0o600)  # it holds the hashes of tokens; SQLite alone would follow the umask
        yield
    finally:
        os.close(descriptor)


def _use_wal(engine: Engine) -> None:
    try:
        with closing(engine.raw_connection()) as connection:
            connection.cursor().execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError:
        raise  # locked, or the disk is full: worth a retry
    except sqlite3.DatabaseError as error:
        raise DatabaseRefusedError(f"database {engine.url.database}: {error}") from None
