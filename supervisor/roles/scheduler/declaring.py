"""Bringing the schedules of this replica's configuration into Redis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from supervisor.core.board import Term
from supervisor.core.model import ScheduleDef
from supervisor.core.triggers import trigger_of
from supervisor.settings.complete import schedules_digest
from supervisor.store.schedules import DECLARE_MAX, Declared, Schedules
from supervisor.store.scripts import Call


def declarations(
    schedules: Schedules, definitions: Sequence[ScheduleDef], *, term: Term, now_ms: int, lease_ms: int
) -> Iterator[Call[Declared]]:
    """Yield the calls that declare the whole set.

    None for an empty set: a replica without schedules would otherwise remove those of all
    others when it comes to lead. It schedules what is stored.
    """
    digest = schedules_digest(definitions)
    for start in range(0, len(definitions), DECLARE_MAX):
        page = definitions[start : start + DECLARE_MAX]
        due = {item.id: trigger_of(item).next_ms(now_ms) for item in page}
        yield schedules.declare(
            epoch=term.epoch,
            nonce=term.nonce,
            digest=digest,
            definitions=page,
            next_due={name: next_ms for name, next_ms in due.items() if next_ms is not None},
            lease_ms=lease_ms,
            is_last=start + DECLARE_MAX >= len(definitions),
        )
