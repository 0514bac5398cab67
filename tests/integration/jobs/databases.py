"""The databases that tests of the identity jobs run on: SQLite, and PostgreSQL where its binaries are installed."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool


def postgres_binaries() -> Path | None:
    """Return the folder of PostgreSQL's server binaries: of PATH, or where Debian keeps them."""
    found = [
        shutil.which("postgres"),
        *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/postgres")), reverse=True),
    ]
    for candidate in found:
        if candidate is not None and (Path(candidate).parent / "initdb").exists():
            return Path(candidate).parent
    return None


def kinds() -> list[str]:
    """Return which databases can be had here."""
    has_postgres = postgres_binaries() is not None and importlib.util.find_spec("psycopg") is not None
    has_user = os.geteuid() != 0 or _other_user() is not None
    return ["sqlite", "postgresql"] if has_postgres and has_user else ["sqlite"]


def _other_user() -> str | None:
    """Return a user to run PostgreSQL as, which refuses to run as root."""
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)


class Postgres:
    """A server of this test session, on a unix socket only."""

    def __init__(self) -> None:
        binaries = postgres_binaries()
        assert binaries is not None
        self._folder = Path(tempfile.mkdtemp(prefix="tenure-pg-"))
        user = _other_user() if os.geteuid() == 0 else None
        if user is not None:
            shutil.chown(self._folder, user)
        self._log = (self._folder.parent / f"{self._folder.name}.log").open("wb")
        data = self._folder / "data"
        make = [
            binaries / "initdb",
            "--pgdata",
            data,
            "--no-locale",
            "--encoding=UTF8",
            "--auth=trust",
            "--username=tenure",
            "--no-sync",
        ]
        subprocess.run(make, check=True, user=user, stdout=self._log, stderr=self._log, cwd="/")
        serve = [binaries / "postgres", "-D", data, "-c", f"unix_socket_directories={self._folder}"]
        for setting in (
            "listen_addresses=",
            "fsync=off",
            "full_page_writes=off",
            "shared_buffers=16MB",
            "max_connections=50",
        ):
            serve += ["-c", setting]
        self.process = subprocess.Popen(serve, user=user, stdout=self._log, stderr=self._log, cwd="/")
        self.url = f"postgresql+psycopg://tenure@/postgres?host={self._folder}"

    def is_up(self) -> bool:
        """Return whether it answers; fail when it ended instead."""
        assert self.process.poll() is None, Path(self._log.name).read_text()
        engine = create_engine(self.url, poolclass=NullPool)
        try:
            engine.connect().close()
        except OperationalError:
            return False
        return True

    def stop(self) -> None:
        """Stop it without waiting for its clients, and remove its data."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        self._log.close()
        Path(self._log.name).unlink()
        shutil.rmtree(self._folder)
