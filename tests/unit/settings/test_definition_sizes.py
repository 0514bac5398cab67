"""Sizes of definitions: what is accepted can be declared."""

from __future__ import annotations

import msgspec

from supervisor.core.model import Kind, ScheduleDef, Template
from supervisor.core.schedules.diff import ANCHORS, settled
from supervisor.settings.schedules.definitions import faults_of_definition
from supervisor.store.wire.definition import pack_definition
from tests.kit.tables import table


@table("anchor", sorted(ANCHORS))
def test_a_definition_that_is_accepted_fits_with_the_beginning_of_its_grid(anchor: str) -> None:
    """The leader adds that when it declares the schedule; within 28 bytes of the limit it could not."""
    template = Template(job="j", kind=Kind.SYNC, args={"x": "y" * 60_000})
    bare = ScheduleDef(id="a", template=template, every_ms=60_000, anchor=anchor)
    room = 65_536 - len(msgspec.json.encode(bare))
    accepted = 0
    for length in range(room - 60, room + 60):
        definition = msgspec.structs.replace(bare, description="z" * length)
        if not faults_of_definition(definition):
            accepted += 1
            pack_definition(settled(definition, None, 1_767_225_600_000))
    assert 0 < accepted < 120
