"""``tenure leader`` as a user runs it, against a real server on which the test plays the replicas."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.election.lease import Term
from supervisor.core.errors import EXIT_NO
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import CandidateInfo, Leases, LeaseView
from supervisor.store.keys import Keys
from tests.kit import launcher
from tests.kit.servers import RealServer
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.server]
ROOT = Path(__file__).resolve().parents[2]
NONCES = {"one": "1" * 32, "two": "2" * 32}


class Begun:
    """A command whose output is read while it runs."""

    def __init__(self, directory: Path, *words: str, is_fresh: bool) -> None:
        out, err = os.pipe(), os.pipe()
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        # A shell starts what runs in its background deaf to SIGINT, and children inherit that; nobody's terminal does.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.process = launcher.launch(
            words, cwd=directory, environ={**environ, "PYTHONPATH": str(ROOT)}, stdout=out[1], stderr=err[1],
            is_fresh=is_fresh,
        )  # fmt: skip
        signal.signal(signal.SIGINT, before)
        os.close(out[1])
        os.close(err[1])
        self.out, self.err = os.fdopen(out[0]), os.fdopen(err[0])

    def ended(self) -> tuple[int, str, str]:
        """Wait for the end; return exit code and what is left of both streams."""
        return self.process.wait(60), self.out.read(), self.err.read()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(60)
        self.out.close()
        self.err.close()


class Election:
    """Two replicas that campaign when the test says so, and the command beside them."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.store = Store.connect(url, settings=RedisSettings(), name="test", timeout_s=20)
        self.keys = Keys("leadertest")
        self.leases = Leases(self.keys)
        self.started: list[Begun] = []
        redis = f'{{url: "{url}", connect_timeout: 20s, command_timeout: 20s}}'  # long, for a busy machine
        config = f"version: 1\ncluster: leadertest\nredis: {redis}\n"
        (directory / "tenure.yaml").write_text(config)

    def campaign(self, name: str) -> LeaseView:
        """Let ``name`` ask for the lease, and be a candidate."""
        call = self.leases.campaign(
            replica=f"{name}.aaaaaa", nonce=NONCES[name], duration_ms=5000, floor=0, mode="free", observed_epoch=0,
            observed_seq=0, info=CandidateInfo(replica=f"{name}.aaaaaa", host="h", pid=1, version="1"),
        )  # fmt: skip
        return self.store.run(call)

    def release(self, name: str, epoch: int) -> None:
        """Let ``name`` give its term back."""
        self.store.run(self.leases.release(Term(epoch, NONCES[name], 0), reason="test"))

    def begin(self, *arguments: str, is_fresh: bool = False) -> Begun:
        """Start ``tenure leader`` with these arguments."""
        self.started.append(Begun(self.directory, "leader", *arguments, is_fresh=is_fresh))
        return self.started[-1]

    def tenure(self, *arguments: str) -> tuple[int, str, str]:
        """Run ``tenure leader`` to its end; return exit code and both streams."""
        done = launcher.tenure(self.directory, "leader", *arguments)
        return done.returncode, done.stdout, done.stderr

    def close(self) -> None:
        for process in self.started:
            process.close()
        self.store.raw.flushall()
        self.store.close()


@pytest.fixture
def election(real_server: RealServer, tmp_path: Path) -> Iterator[Election]:
    """An empty cluster."""
    found = Election(tmp_path, real_server.url)
    yield found
    found.close()


def test_show_says_who_leads_and_who_could(election: Election) -> None:
    """Exit 3 while nobody leads, so that a script need not read anything."""
    assert election.tenure("show")[0] == EXIT_NO
    won = election.campaign("one")
    election.campaign("two")
    code, out, _ = election.tenure("show", "-o", "json")
    shown = json.loads(out)

    assert code == 0
    assert (shown["holder"], shown["epoch"], shown["hold"]) == ("one.aaaaaa", won.epoch, None)
    assert {each["replica"]: each["role"] for each in shown["candidates"]} == {
        "one.aaaaaa": "leader", "two.aaaaaa": "standby",
    }  # fmt: skip
    assert "Leader: one.aaaaaa" in election.tenure("show")[1]


def test_history_tells_the_newest_change_first(election: Election) -> None:
    """What happened, to whom, why, and when by Redis' clock."""
    won = election.campaign("one")
    election.release("one", won.epoch)
    election.campaign("two")
    code, out, _ = election.tenure("history", "-o", "json")
    rows = json.loads(out)

    assert code == 0
    assert [(row["change"], row["who"], row["reason"]) for row in rows] == [
        ("acquired", "two.aaaaaa", "free"), ("released", "one.aaaaaa", "test"), ("acquired", "one.aaaaaa", "vacant"),
    ]  # fmt: skip
    assert len(json.loads(election.tenure("history", "--count", "1", "-o", "json")[1])) == 1
    assert "released" in election.tenure("history")[1]


def test_watch_prints_the_state_and_then_each_change(election: Election) -> None:
    """One JSON object for each, flushed at once; it ends after so many."""
    won = election.campaign("one")
    process = election.begin("watch", "--count", "2", "-o", "json")
    assert json.loads(process.out.readline())["holder"] == "one.aaaaaa"
    election.release("one", won.epoch)
    election.campaign("two")
    code, out, _ = process.ended()

    assert code == 0
    changes: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert [each["change"] for each in changes] == ["released", "acquired"]
    assert changes[1]["epoch"] > won.epoch


def test_watch_ends_when_its_time_is_over(election: Election) -> None:
    """For scripts that want to know whether anything changed within a time."""
    election.campaign("one")

    def watched() -> tuple[int, str, str] | None:
        """A read has 0.25 s more than its block, short for a busy machine: a later answer is an outage."""
        ended = election.tenure("watch", "--timeout", "100ms")
        return None if "waiting for it" in ended[2] else ended

    code, out, err = wait_until(watched, what="a watch whose only read was answered in time")
    assert (code, err) == (0, "")
    assert out.startswith("Leader: one.aaaaaa")
    assert len(out.splitlines()) == 1


def test_watch_ends_cleanly_on_ctrl_c(election: Election) -> None:
    """It is how a person ends it, so it is no failure and shows no traceback."""
    election.campaign("one")
    process = election.begin("watch", is_fresh=True)
    process.out.readline()
    process.process.send_signal(signal.SIGINT)
    code, _, err = process.ended()

    assert (code, err) == (0, "")


def test_resign_waits_until_another_leads(election: Election) -> None:
    """The request names the term and the heir; the leader obeys with its next renewal."""
    won = election.campaign("one")
    election.campaign("two")
    process = election.begin("resign", "--to", "two", "--yes")
    view: LeaseView = wait_until(lambda: _asked(election), what="the request to arrive")
    assert view.resign_to == "two.aaaaaa"
    election.release("one", won.epoch)
    heir = election.campaign("two")
    code, out, err = process.ended()

    assert (code, err) == (0, "")
    assert out == f"two.aaaaaa leads now (epoch {heir.epoch}).\n"


def _asked(election: Election) -> LeaseView | None:
    view = election.store.run(election.leases.view())
    return view if view.is_resign_requested else None


def test_resign_says_why_nobody_followed(election: Election) -> None:
    """A leader that does not answer is not waited for longer than asked; exit 3."""
    election.campaign("one")
    election.campaign("two")
    code, _, err = election.tenure("resign", "--yes", "--timeout", "100ms")

    assert code == EXIT_NO
    assert "one.aaaaaa still leads after 100ms" in err


@pytest.mark.parametrize(
    ("names", "arguments", "says"),
    [
        ((), (), "nobody leads"),
        (("one",), (), "only candidate"),
        (("one", "two"), ("--to", "three"), "no replica that could lead is called 'three'"),
    ],
)
def test_resign_refuses_what_cannot_be(
    election: Election, names: tuple[str, ...], arguments: tuple[str, ...], says: str
) -> None:
    """Nothing is asked of anybody, and the message says what to do; exit 3."""
    for name in names:
        election.campaign(name)
    code, _, err = election.tenure("resign", "--yes", *arguments)

    assert code == EXIT_NO
    assert says in err


def test_resign_to_the_leader_itself_is_done_already(election: Election) -> None:
    """A script that wants a certain leader may say so twice."""
    election.campaign("one")
    code, out, _ = election.tenure("resign", "--to", "one", "--yes")

    assert code == 0
    assert out.startswith("one.aaaaaa leads already")


def test_resign_asks_before_it_acts(election: Election) -> None:
    """No answer on standard input is a no: nothing is requested."""
    election.campaign("one")
    election.campaign("two")
    code, _, err = election.tenure("resign")

    assert code == 1
    assert "Ask it to hand over to another replica?" in err
    assert "give --yes where there is no terminal" in err
    assert _asked(election) is None


def test_clear_hold_says_that_nothing_is_held(election: Election) -> None:
    """And changes nothing then."""
    election.campaign("one")

    assert election.tenure("clear-hold", "--yes")[:2] == (0, "Nothing is held.\n")


def test_a_hold_is_shown_and_cleared(election: Election) -> None:
    """After a loss of data, with on_data_loss: hold, a person lets the fires go on."""
    won = election.campaign("one")
    election.store.run(
        election.leases.renew(Term(won.epoch, NONCES["one"], 0), duration_ms=5000, hold="Redis lost data")
    )
    assert "fires nothing until `tenure leader clear-hold`: Redis lost data" in election.tenure("show")[1]
    code, out, _ = election.tenure("clear-hold", "--yes")

    assert (code, out) == (0, "The leader fires again.\n")
    assert election.store.run(election.leases.view()).hold == ""


def test_a_hold_is_cleared_also_where_nobody_leads(election: Election) -> None:
    """And the command does not say that somebody does."""
    won = election.campaign("one")
    term = Term(won.epoch, NONCES["one"], 0)
    election.store.run(election.leases.renew(term, duration_ms=5000, hold="Redis lost data"))
    election.store.run(election.leases.release(term, reason="shutdown"))
    code, out, _ = election.tenure("clear-hold", "--yes")

    assert (code, out) == (0, "Cleared. Nobody leads now: the next leader fires.\n")
