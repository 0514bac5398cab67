"""Life of a token: it ends with its line, its file, or its day; wrong ones are logged in folds and slowed down."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from supervisor.roles.web.access.auth import ADDRESSES_MAX, BURST, REFILL_S, RequestGuard, TokenRefusals
from supervisor.settings.sections.web import WebSettings
from supervisor.settings.web.tokens import POWERFUL_JOBS, Scope, Token, is_powerful
from supervisor.telemetry.logs import FOLD_S
from tests.kit.clock import FakeClock
from tests.kit.tables import table
from tests.unit.roles.web.test_rights import asked, code_of

ROOT = Path(__file__).parents[4]
DAY_MS = 86_400_000


def line(name: str, *limits: str) -> str:
    """Return the line of a token, which is its name in capitals, with the scope operate."""
    return " ".join([name, f"sha256:{hashlib.sha256(name.upper().encode()).hexdigest()}", "operate", *limits]) + "\n"


@pytest.fixture
def desk(tmp_path: Path) -> Any:
    """A file with the token OPS, a clock, and the guard over both."""

    class TokenFile:
        clock: Any = FakeClock(elapsed_ns=0, wall_ms=0)
        file = tmp_path / "tokens"

        def write(self, text: str) -> None:
            self.file.write_text(text)
            self.guard.look()

        def code(self, token: str | None, scope: Scope = Scope.OPERATE) -> int:
            return code_of(self.guard, asked(token=token), scope)

    made = TokenFile()
    made.file.write_text(line("ops"))
    made.guard = RequestGuard(WebSettings(tokens_file=str(made.file)), made.clock)  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize("fault", ["ops sha256:zz operate\n", None, "writable"])
def test_a_file_that_cannot_be_used_leaves_nobody_with_a_token(desk: Any, fault: str | None) -> None:
    """A slip of the pen while a token is taken away must not leave it in force; readiness says so until it is mended."""
    assert desk.code("OPS") == 200
    if fault is None:
        desk.file.unlink()
    elif fault == "writable":
        desk.file.chmod(0o666)
    else:
        desk.file.write_text(fault)
    with capture_logs() as logs:
        desk.guard.look()
        desk.guard.look()

    assert (desk.code("OPS"), bool(desk.guard.fault)) == (401, True)
    assert [each["event"] for each in logs] == ["tokens_refused"]
    desk.file.unlink(missing_ok=True)
    desk.write(line("ops"))
    assert (desk.code("OPS"), desk.guard.fault) == (200, "")


def test_a_change_is_seen_whatever_time_the_file_shows(desk: Any) -> None:
    """Copies that keep times, and archives that give all files one, took a token away and left it in force."""
    before = desk.file.stat()
    desk.file.write_text(line("opt"))
    os.utime(desk.file, ns=(before.st_atime_ns, before.st_mtime_ns))
    while desk.file.stat().st_ctime_ns == before.st_ctime_ns:  # one tick of a clock that is coarse
        os.utime(desk.file, ns=(before.st_atime_ns, before.st_mtime_ns))
    desk.guard.look()

    assert desk.file.stat().st_size == before.st_size
    assert (desk.code("OPS"), desk.code("OPT")) == (401, 200)


def test_a_token_ends_on_its_day(desk: Any) -> None:
    """At midnight in UTC, or at an instant with its offset."""
    desk.write(line("ops", "until=1970-01-02") + line("ci", "until=1970-01-01T01:00:00+00:00"))
    assert (desk.code("OPS"), desk.code("CI")) == (200, 200)
    desk.clock.advance(3600)
    assert (desk.code("OPS"), desk.code("CI")) == (200, 401)
    desk.clock.advance(DAY_MS / 1000 - 3600)
    assert desk.code("OPS") == 401


def test_wrong_tokens_are_slowed_down_and_those_in_use_are_not(desk: Any) -> None:
    """Guessing takes six seconds a word; a neighbour behind the same proxy goes on."""
    assert desk.code("OPS") == 200
    codes = [desk.code(f"guess{number}") for number in range(BURST + 5)]
    assert codes == [401] * BURST + [429] * 5
    assert desk.code("OPS") == 200
    assert desk.code(None) == 401  # nobody was guessed
    desk.write(line("ops") + line("late"))
    assert desk.code("LATE") == 429
    desk.clock.advance(REFILL_S)
    assert [desk.code("LATE"), desk.code("guess"), desk.code("guess")] == [200, 401, 429]


def test_a_token_that_nobody_guesses_is_not_slowed_down(desk: Any) -> None:
    """One that was just made, or whose use a reload has forgotten: who sends wrong ones shuts out no neighbour."""
    made = "tenure_" + "R" * 43
    desk.write(line("ops") + f"ci sha256:{hashlib.sha256(made.encode()).hexdigest()} operate\n")
    assert [desk.code(f"guess{number}") for number in range(BURST + 2)] == [401] * BURST + [429] * 2
    assert [desk.code(made), desk.code("OPS")] == [200, 429]


def test_a_whole_network_of_ipv6_is_one_address_that_guesses(desk: Any) -> None:
    """A single client has 2^64 addresses; with a budget for each, guessing would cost nothing."""

    def code(host: str, token: str) -> int:
        return code_of(desk.guard, asked(token=token, remote=host), Scope.OPERATE)

    codes = [code(f"2001:db8:1:2::{number:x}", f"guess{number}") for number in range(BURST + 5)]

    assert codes == [401] * BURST + [429] * 5
    assert code("2001:db8:1:3::1", "OPS") == 200


def test_the_reason_of_a_failed_check_is_no_way_around(desk: Any) -> None:
    """Whether health shows its reasons tells a right token from a wrong one."""
    for number in range(BURST):
        assert not desk.guard.may_read(asked(token=f"guess{number}"))

    assert not desk.guard.may_read(asked(token="OPS"))


def test_refused_tokens_are_logged_in_folds() -> None:
    """The first at once, then a line a minute with their number; never a token, never without a bound."""
    clock: Any = FakeClock(elapsed_ns=0, wall_ms=0)
    refusals = TokenRefusals(clock)
    with capture_logs() as logs:
        for _ in range(300):
            refusals.refuse("192.0.2.1", "/configz" + "x" * 5000)
        clock.advance(FOLD_S)
        refusals.lines.tell()
        refusals.lines.tell()

    assert [(each["event"], each["count"], each["address"]) for each in logs] == [
        ("token_refused", 1, "192.0.2.1"),
        ("token_refused", 299, "192.0.2.1"),
    ]
    assert all(len(each["path"]) <= 200 for each in logs)


def test_so_many_addresses_are_remembered() -> None:
    """Whoever has a whole network fills no memory."""
    clock: Any = FakeClock(elapsed_ns=0, wall_ms=0)
    refusals = TokenRefusals(clock)
    for number in range(ADDRESSES_MAX + 50):
        refusals.refuse(f"2001:db8::{number:x}", "/")

    assert len(refusals._addresses) == ADDRESSES_MAX


@table(
    ("scope", "jobs", "job", "is_let_in"),
    [
        (Scope.OPERATE, (), "mail.send", True), (Scope.OPERATE, (), "shell.command", False), (Scope.OPERATE, (), "http.request", False),
        (Scope.OPERATE, ("*",), "shell.command", False), (Scope.OPERATE, ("shell.*",), "shell.command", False),
        (Scope.OPERATE, ("shell.command",), "shell.command", True), (Scope.OPERATE, ("report.*", "mail.*"), "mail.send", True),
        (Scope.OPERATE, ("report.*",), "mail.send", False), (Scope.ADMIN, (), "shell.command", True),
        (Scope.ADMIN, ("mail.*",), "shell.command", False),
    ],
)  # fmt: skip
def test_arguments_that_are_code_need_admin_or_the_name_of_the_job(
    *, scope: Scope, jobs: tuple[str, ...], job: str, is_let_in: bool
) -> None:
    """A token that enqueues reports is not a shell; a wildcard is no decision to hand one out."""
    token = Token(name="t", digest=b"", scope=scope, jobs=jobs)

    assert token.may_enqueue(job, None) is is_let_in


def test_a_token_for_queues_reaches_no_other() -> None:
    """Patterns, as for jobs."""
    token = Token(name="t", digest=b"", scope=Scope.OPERATE, queues=("mail-*",))

    assert token.may_enqueue("mail.send", "mail-eu")
    assert not token.may_enqueue("mail.send", "billing")
    assert not token.reaches(job="mail.send", queue="default")


def test_a_token_for_queues_enqueues_no_job_that_reaches_all_of_them() -> None:
    """A job that drops dead runs everywhere would drop those of others, from the queue that the token may use."""
    limited = Token(name="t", digest=b"", scope=Scope.ADMIN, queues=("reports",), jobs=("maintenance.*",))

    assert not limited.may_enqueue("maintenance.trim_history", "reports")
    assert replace(limited, jobs=("maintenance.trim_history",)).may_enqueue("maintenance.trim_history", "reports")
    assert replace(limited, queues=()).may_enqueue("maintenance.trim_history", "reports")
    assert replace(limited, queues=(), labels=(("team", "mail"),)).must_name("maintenance.trim_history")


@pytest.mark.parametrize(
    ("scope", "queues", "job", "said"),
    [
        (
            Scope.ADMIN,
            ("reports",),
            "maintenance.trim_history",
            "every queue, so a token with queues= or labels= needs jobs=maint",
        ),
        (Scope.OPERATE, ("reports",), "maintenance.trim_history", "needs jobs=maintenance.trim_history in the token's"),
        (Scope.OPERATE, (), "shell.command", "needs jobs=shell.command in the token's line, or admin"),
        (Scope.OPERATE, ("mail",), "mail.send", ""),
    ],
)
def test_a_refusal_names_a_line_that_would_be_let_in(
    scope: Scope, queues: tuple[str, ...], job: str, said: str
) -> None:
    """A holder of ``admin`` was told to get ``admin``."""
    token = Token(name="t", digest=b"", scope=scope, queues=queues)

    assert said in token.remedy(job)
    assert bool(said) is bool(token.remedy(job))
    assert replace(token, jobs=(job,)).may_enqueue(job, queues[0] if queues else None)
    assert ("admin" in token.remedy(job)) is (bool(said) and replace(token, scope=Scope.ADMIN).may_enqueue(job, None))


def test_every_shipped_job_that_takes_references_or_commands_is_one_of_the_powerful() -> None:
    """A new one must not be forgotten."""
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "jobs").rglob("*.py")}
    folders = {
        path.relative_to(ROOT / "jobs").parts[0].removesuffix(".py")
        for path, text in sources.items()
        if "import resolve" in text or "import is_reference" in text or "command.spec import" in text
    }

    assert folders >= {"shell", "http", "identity"}
    assert all(is_powerful(f"{name}.x") for name in folders)
    shipped = {*sources.values(), *(path.read_text() for path in (ROOT / "supervisor").rglob("*.py"))}
    names = {name for text in shipped for name in re.findall(r'^@job\("([a-z.]+\.[a-z_]+)"', text, flags=re.MULTILINE)}
    harmless = {name for name in names if not is_powerful(name)}
    assert harmless == {"maintenance.trim_history", "maintenance.verify_queues"}, "decide over each shipped job"
    assert len(POWERFUL_JOBS) == len(set(POWERFUL_JOBS))


def test_a_slowed_address_is_told_when_to_come_back(desk: Any) -> None:
    """Clients heed Retry-After."""
    for number in range(BURST):
        desk.code(f"guess{number}")
    with pytest.raises(web.HTTPTooManyRequests) as refusal:
        desk.guard.check(asked(token="guess"), Scope.READ)

    assert refusal.value.headers["Retry-After"] == "6"
