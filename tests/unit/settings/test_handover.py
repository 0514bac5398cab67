"""Configurations in memory that processes share: whole, or not there, and changed by the parent alone."""

from __future__ import annotations

import faulthandler
import mmap
import os
import resource
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.process.system.linux import open_descriptors
from supervisor.reload import config_memfd as module
from supervisor.reload.audiences import ROLES, Audience
from supervisor.reload.config_memfd import Brief, Handover, HandoverError
from supervisor.settings.sections.models import Settings

SCHEDULE = ScheduleDef(id="a", template=Template(job="j", kind=Kind.SYNC))
BRIEF = Brief("digest", {"j": "{}"})


@pytest.fixture
def handover() -> Iterator[Handover]:
    """All buffers, empty."""
    made = Handover()
    yield made
    made.close()


def check(handover: Handover, number: int, *, in_effect: int, cluster: str = "c1") -> None:
    """Let the check of ``number`` write."""
    settings = Settings.model_validate(
        {"cluster": cluster, "redis": {"url": "redis://:secret@h"}, "schedules": {"a": {"job": "j", "every": "1s"}}}
    )
    handover.open(number, in_effect=in_effect)
    handover.write(number, plan=b"{}", settings=settings, brief=BRIEF, definitions=(SCHEDULE,))


def write(handover: Handover, number: int, *, in_effect: int, cluster: str = "c1") -> bytes | None:
    """Hand over configuration ``number``, and return its plan."""
    check(handover, number, in_effect=in_effect, cluster=cluster)
    return handover.take(number, in_effect=in_effect)


@pytest.mark.parametrize("role", sorted(ROLES))
def test_what_is_handed_over_comes_out_whole(handover: Handover, role: Audience) -> None:
    """The password of Redis included: every role must connect."""
    assert write(handover, 3, in_effect=0) == b"{}"

    reader = handover.reader(role)
    assert reader.settings(3).redis.url.get_secret_value() == "redis://:secret@h"
    assert reader.settings(3).schedules == {}
    assert list(reader.settings(3, with_schedules=True).schedules) == ["a"]
    assert reader.definitions(3) == (SCHEDULE,)
    assert reader.brief(3) == BRIEF


def test_the_one_in_effect_survives_any_number_of_checks(handover: Handover) -> None:
    """A child may be started at any moment, also while the next configuration is being judged and refused."""
    reader = handover.reader(Audience.WORKER)
    write(handover, 1, in_effect=0, cluster="first")
    for number in range(2, 6):
        write(handover, number, in_effect=1)
        assert reader.settings(1).cluster == "first"
        assert handover.reader(Audience.CHECK).settings(1).cluster == "first"
        assert reader.settings(number).cluster == "c1"
    write(handover, 6, in_effect=5)
    assert reader.settings(5).cluster == "c1"


def test_an_unknown_number_is_an_error_not_another_configuration(handover: Handover) -> None:
    """A child that reads late must not take what it was not told to take."""
    assert handover.take(1, in_effect=0) is None
    write(handover, 1, in_effect=0)
    with pytest.raises(HandoverError):
        handover.reader(Audience.WEB).settings(2)


def test_a_storm_of_reloads_keeps_no_descriptor(handover: Handover) -> None:
    """Each check has memory of its own, and only that of the configuration in effect is kept."""
    write(handover, 1, in_effect=0)
    write(handover, 2, in_effect=1)
    before = len(open_descriptors())
    for number in range(3, 60):
        handover.open(number, in_effect=2)

    assert len(open_descriptors()) == before


def test_a_check_that_was_killed_at_any_step_left_nothing(handover: Handover, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not sealed is not believed, and the seals come last."""
    write(handover, 1, in_effect=0, cluster="first")
    handover.open(2, in_effect=1)
    assert handover.take(2, in_effect=1) is None  # before it wrote anything
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_once", lambda descriptor, _number, parts: os.write(descriptor, b"".join(parts)))
        check(handover, 3, in_effect=1)  # before the header
    assert handover.take(3, in_effect=1) is None
    with monkeypatch.context() as patch:
        patch.setattr("supervisor.reload.config_memfd.fcntl.fcntl", lambda *_: 0)
        check(handover, 4, in_effect=1)  # before the seals
    assert handover.take(4, in_effect=1) is None

    assert handover.reader(Audience.AGENT).settings(1).cluster == "first"


def test_nobody_but_the_parent_changes_what_children_read(handover: Handover) -> None:
    """Neither through a descriptor that they have, nor through one that they open anew."""
    write(handover, 1, in_effect=0, cluster="first")
    descriptors = {each for audience in ROLES for each in handover.reader(audience).descriptors}

    for descriptor in descriptors:
        again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
        for each in (descriptor, again):
            with pytest.raises(PermissionError):
                os.pwrite(each, b"x", 0)
            with pytest.raises(PermissionError):
                os.ftruncate(each, 0)
            with pytest.raises(PermissionError):
                mmap.mmap(each, 4096)
        os.close(again)


def test_a_forked_child_has_no_way_to_write(handover: Handover) -> None:
    """The parent's mapping is not inherited; the first byte that a child writes there ends it."""
    memory = handover._shared[0]._memory
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        memory[0] = 1
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)


def test_bytes_of_a_program_run_nothing(handover: Handover, tmp_path: Path) -> None:
    """What a check writes is data: a pickle that would create a file is refused as no configuration."""
    proof = tmp_path / "ran"
    pickled = b"cposix\nsystem\n(S'touch %s'\ntR." % str(proof).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "pack", lambda *_: pickled)
        check(handover, 1, in_effect=0)
    handover.take(1, in_effect=0)

    with pytest.raises(ValueError):  # noqa: PT011 - msgspec's, whatever its words
        handover.reader(Audience.AGENT).settings(1)
    assert not proof.exists()


@pytest.mark.parametrize("name", ["BYTES_MAX", "ROLE_BYTES_MAX"])
def test_a_configuration_that_is_too_large_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every payload has a limit."""
    monkeypatch.setattr(module, name, 50)

    with closing(Handover()) as handover, pytest.raises(HandoverError, match="larger than"):
        write(handover, 1, in_effect=0)


def test_a_limit_on_the_size_of_files_bounds_a_configuration_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts shared memory as a file; a tree under LimitFSIZE= starts, and says what is in the way."""
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (4096 + 50, resource.RLIM_INFINITY))

    with closing(Handover()) as handover, pytest.raises(HandoverError, match="LimitFSIZE="):
        write(handover, 1, in_effect=0)
