"""The search for secrets finds them: else all the tests that it watches would show nothing."""

from __future__ import annotations

from types import SimpleNamespace

import fakeredis
import pytest

from tests.conftest import pytest_runtest_makereport
from tests.kit.canary import CANARY, asking, keys_with_secrets, show_nothing_secret


def test_a_secret_in_a_page_is_named_by_its_place_and_never_repeated() -> None:
    """The failure is read by people and kept by machines."""
    with pytest.raises(AssertionError, match="shown by /statusz of one, in line 2 of 2") as failure:
        show_nothing_secret(f"fine\ntoken={CANARY}\n", where="/statusz of one")

    assert CANARY not in str(failure.value).partition("\n")[0]


def test_a_secret_is_found_in_a_record_of_any_type_but_not_in_a_payload() -> None:
    """A worker has to get what its job needs; history, errors, results and lists of dead runs have not."""
    raw = fakeredis.FakeRedis()
    prefix = "{tenure:t}:"
    raw.hset(f"{prefix}q:default:data", "r", CANARY)
    raw.rpush("identity_job", CANARY)
    assert keys_with_secrets(asking(raw)) == []

    raw.set(f"{prefix}result:r", f"x{CANARY}")
    raw.hset(f"{prefix}q:default:err", "r", CANARY)
    raw.rpush(f"{prefix}q:default:hist", CANARY)
    raw.zadd(f"{prefix}q:default:dead", {CANARY: 1})
    raw.sadd(f"{prefix}dying", CANARY)
    raw.xadd(f"{prefix}events", {"note": CANARY})

    assert len(keys_with_secrets(asking(raw))) == 6


@pytest.mark.parametrize("title", ["Captured stdout call", "Captured stderr setup", "Captured log teardown"])
def test_a_test_that_prints_a_secret_fails(title: str) -> None:
    """Whatever pytest captured is searched, whether or not the test itself looks at it."""
    report = SimpleNamespace(sections=[(title, f"one\n{CANARY}\n")], failed=False, outcome="passed", longrepr=None)
    hook = pytest_runtest_makereport(
        SimpleNamespace(nodeid="tests/test_x.py::test_y", stash=pytest.Stash()), SimpleNamespace(when="call")
    )
    next(hook)

    with pytest.raises(StopIteration):
        hook.send(report)

    assert report.outcome == "failed"
    assert title in str(report.longrepr)
