"""What must be true of every step of every history, from the world ``b`` before it to the world ``a`` after it.

Ten rules: nine below, and ``explorer.explore`` checks the tenth, that from every state somebody can come to lead.
A fire here is one that Redis accepted; a replica trusts while its board shows a term and ``until`` has not come.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from tests.model.world import ModelState

Invariant = Callable[[ModelState, ModelState], bool]

INVARIANTS: dict[str, Invariant] = {
    "a due time is accepted once": lambda _, a: len({fire.nominal for fire in a.fires}) == len(a.fires),
    "accepted epochs never decrease": lambda _, a: all(x.epoch <= y.epoch for x, y in pairwise(a.fires)),
    "a fire comes from the term that stands": lambda b, a: a.fires == b.fires or a.fires[-1].is_of(b.record),
    "no due time is passed over": lambda _, a: [fire.nominal for fire in a.fires] == list(range(1, a.record.mark + 1)),
    "the watermark never goes back": lambda b, a: b.record.mark <= a.record.mark,
    "epochs never go back": lambda b, a: b.record.epoch <= a.record.epoch,
    "another term has another epoch": lambda b, a: (
        a.record.nonce in {0, b.record.nonce} or a.record.epoch > b.record.epoch
    ),
    "who trusts a term holds the lease": lambda _, a: all(a.record.holder == number for number in a.trusting),
    "two replicas never trust": lambda _, a: len(a.trusting) <= 1,
}


def somebody_leads(world: ModelState) -> bool:
    """The goal that must be within reach of every state: a replica may fire."""
    return len(world.trusting) > 0
