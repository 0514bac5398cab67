"""Opening the identity database: what is refused, what is made, and who may read it."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect, text
from sqlalchemy.exc import OperationalError

from supervisor.core.errors import ArgumentsError
from supervisor.core.jobs.registry import registry
from tenure.jobs.identity.database import DatabaseRefusedError, open_database, reading
from tenure.jobs.identity.models import metadata
from tenure.jobs.references import UnresolvedReferenceError, resolve
from tests.integration.jobs.processes import run_together

pytestmark = pytest.mark.xdist_group("databases")


@pytest.mark.parametrize(
    ("database", "message"),
    [
        ("nonsense", "database 'nonsense' is no URL; write sqlite:///"),
        ("", "database '' is no URL"),
        (
            "postgresql://tenure:word@db.example/x",
            r"postgresql://tenure:\*\*\*@db.example/x holds a password.*env:NAME",
        ),
        ("postgresql://db.example/x?password=word", "holds a password"),
        ("sqlite://", "must be a file for SQLite"),
        ("sqlite:///:memory:", "must be a file for SQLite"),
        ("sqlite:///file:x?uri=true", "must be a file for SQLite"),
        ("nosuchdb://h/x", "needs a driver for nosuchdb"),
        ("sqlite:////proc/no/such/identity.db", "its folder cannot be written"),
    ],
)
def test_what_is_no_usable_database_is_refused(database: str, message: str) -> None:
    """With the remedy, and without the password."""
    with pytest.raises(DatabaseRefusedError, match=message) as caught, open_database(database):
        pass
    assert "word@" not in str(caught.value)
    assert "=word" not in str(caught.value)


def test_a_database_may_be_named_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL, password and all, stays on the worker."""
    monkeypatch.setenv("IDENTITY_URL", f"sqlite:///{tmp_path}/one.db")
    (tmp_path / "url").write_text(f"sqlite:///{tmp_path}/two.db\n")
    for reference in ("env:IDENTITY_URL", f"file:{tmp_path}/url"):
        with open_database(reference):
            pass

    assert (tmp_path / "one.db").exists()
    assert (tmp_path / "two.db").exists()


def test_a_bad_url_behind_a_reference_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold a password all the same."""
    monkeypatch.setenv("IDENTITY_URL", "postgresql//tenure:word@db.example")

    refusal = "database 'env:IDENTITY_URL' is no URL"
    with pytest.raises(DatabaseRefusedError, match=refusal) as caught, open_database("env:IDENTITY_URL"):
        pass
    assert "word" not in str(caught.value)


def test_the_tables_are_made_and_used(engine: Engine, database: str) -> None:
    """By the first that opens the database; the second finds them."""
    with open_database(database) as again, reading(again) as connection:
        assert set(metadata.tables) <= set(inspect(connection).get_table_names())


def test_a_new_sqlite_file_is_private_and_writes_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the hashes of tokens; and readers must not wait for a sync. A relative path is the tree's."""
    monkeypatch.chdir(tmp_path)
    with open_database("sqlite:///made/identity.db") as engine, engine.connect() as connection:
        assert connection.scalar(text("PRAGMA journal_mode")) == "wal"
        assert connection.scalar(text("PRAGMA foreign_keys")) == 1

    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "made/identity.db").stat().st_mode) == 0o600


def test_reading_waits_for_no_writer(tmp_path: Path) -> None:
    """A sync of a hundred thousand domains must not stop the endpoint verification."""
    with open_database(f"sqlite:///{tmp_path}/identity.db") as engine, engine.begin() as writer:
        writer.execute(text("DELETE FROM tokens"))
        with reading(engine) as reader:
            assert reader.scalar(text("SELECT count(*) FROM tokens")) == 0


def test_a_file_that_is_no_database_is_an_error(tmp_path: Path) -> None:
    """Never overwritten."""
    (tmp_path / "identity.db").write_text("something else, longer than the header of a database" * 100)

    url = f"sqlite:///{tmp_path}/identity.db"
    with pytest.raises(DatabaseRefusedError, match=r"identity.db: file is not a database"), open_database(url):
        pass
    assert (tmp_path / "identity.db").read_text().startswith("something else")


OPEN = """
import sys
from tenure.jobs.identity.database import open_database, reading
from sqlalchemy import text
for number in range(4):
    with open_database(sys.argv[1].replace("NUMBER", str(number))) as engine, reading(engine) as connection:
        connection.execute(text("SELECT count(*) FROM domains"))
"""


@pytest.mark.share(2)
def test_many_processes_may_open_a_new_database_at_once(database: str, tmp_path: Path) -> None:
    """All replicas start together. SQLite's switch to WAL heeds no timeout, so there it is tried on several files."""
    assert run_together(OPEN, tmp_path, [[database.replace("identity.db", "NUMBER.db")]] * 3) == []


def test_references_resolve_on_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newline that editors put at the end of a file is not part of a secret."""
    monkeypatch.setenv("SECRET", "one")
    (tmp_path / "secret").write_text("two\n")

    assert resolve("token", "env:SECRET") == "one"
    assert resolve("token", f"file:{tmp_path}/secret") == "two"


@pytest.mark.parametrize(
    ("reference", "content", "message"),
    [
        ("env:NO_SUCH_VARIABLE", b"", "token: environment variable NO_SUCH_VARIABLE is not set"),
        ("file:relative", b"", "token: file:relative must be an absolute path"),
        ("file:{}/none", b"", "token: cannot read .*/none: No such file"),
        ("file:{}", b"", "token: cannot read .*: Is a directory"),
        ("file:{}/secret", b"", "is empty or larger than 65536 bytes"),
        ("file:{}/secret", b"\n", "is empty or larger"),
        ("file:{}/secret", b"x" * 70_000, "is empty or larger"),
        ("file:{}/secret", b"\xff\xfe", "is not UTF-8 text"),
        ("file:{}/secret", b"a\0b", "contains a NUL byte"),
        ("hunter2", b"", "token must say where the secret is, env:NAME or file:/path; it is neither"),
    ],
)
def test_a_reference_that_leads_nowhere_is_explained(
    tmp_path: Path, reference: str, content: bytes, message: str
) -> None:
    """By the argument's name and the place; a secret given instead of its place is not repeated."""
    (tmp_path / "secret").write_bytes(content)

    with pytest.raises(UnresolvedReferenceError, match=message) as caught:
        resolve("token", reference.format(tmp_path))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("job", ["identity.domain_sync", "identity.token_cleanup", "identity.endpoint_verification"])
@pytest.mark.parametrize(
    "database", ["postgresql://me:hunter2@db/x", "postgresql+psycopg://:hun/ter2@db/x", "sqlite:///x?password=hunter2"]
)
def test_a_password_is_refused_before_it_lies_in_the_queue(job: str, database: str) -> None:
    """Whoever writes the schedule or enqueues hears of it, without the password."""
    arguments = {"database": database, **({"source": "list.json"} if job == "identity.domain_sync" else {})}

    with pytest.raises(ArgumentsError, match="database: it must hold no password: arguments lie in the queue") as found:
        registry.get(job).template(arguments)
    assert "ter2" not in str(found.value)


@pytest.mark.parametrize(
    "database", ["sqlite:///a.db", "postgresql://me@db:5432/x?sslmode=require", "env:URL", "file:/run/secrets/a:b@c"]
)
def test_a_database_without_a_password_is_taken(database: str) -> None:
    """References too: what they lead to is read by the worker."""
    assert registry.get("identity.token_cleanup").check({"database": database}) == {"database": database}


def test_a_table_of_another_program_is_refused_and_a_view_serves(tmp_path: Path) -> None:
    """Its columns would be missed in the words of SQL, in the middle of a run; a view has whatever it is given."""
    url = f"sqlite:///{tmp_path}/theirs.db"
    with sqlite3.connect(tmp_path / "theirs.db") as raw:
        raw.execute("CREATE TABLE tokens (token TEXT, user TEXT)")
    with pytest.raises(DatabaseRefusedError, match="table tokens is there without the columns created, domain_id"):
        opened(url)

    with sqlite3.connect(tmp_path / "theirs.db") as raw:
        raw.execute("ALTER TABLE tokens RENAME TO theirs")
        columns = "rowid AS id, user AS domain_id, token AS hash, 0 AS created, NULL AS expires_at"
        raw.execute(f"CREATE VIEW tokens AS SELECT {columns} FROM theirs")
    opened(url)


def opened(url: str) -> None:
    """Open a database and close it."""
    with open_database(url):
        pass


def test_a_locked_database_fails_the_run_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits as long as its bound, and then the run is retried rather than stuck."""
    monkeypatch.setattr("tenure.jobs.identity.database.LOCK_WAIT_MS", 50)
    url = f"sqlite:///{tmp_path}/identity.db"
    with open_database(url) as holder, open_database(url) as engine, holder.begin():
        locked = pytest.raises(OperationalError, match="database is locked")
        with locked, engine.begin():
            pass
