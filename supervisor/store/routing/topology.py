"""Topology: the master's address from the answers of sentinels or cluster nodes. Pure.

Guarantees
    A sentinel that was cut off with a deposed master is outvoted by any that knows a newer
    configuration: every answer carries the epoch of the configuration it comes from.
    Nothing is decided by one answer alone: whoever is named is asked for its role (Sentinel),
    or whether it serves the keys (Cluster), before it is used.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.core.supervision.scoreboard import ENDPOINT_BYTES_MAX
from supervisor.settings.sections.redis_url import join_address, split_address

MASTER = b"master"
_MOVED = re.compile(r"(?:MOVED )?\d+ (\S*):(\d+)")


@dataclass(frozen=True, slots=True)
class Claim:
    """One answer: the master is at ``address``, as of configuration ``epoch``."""

    address: str
    epoch: int = 0
    is_coming: bool = False  # it is being made master at this moment


@dataclass(frozen=True, slots=True)
class DiscoveryFailure:
    """Somebody who was asked and named no master."""

    asked: str
    reason: str
    is_refusal: bool = False  # it answered, and a person must act: unknown name, wrong password


def rank(claims: Sequence[Claim]) -> list[str]:
    """Return the addresses to try, best first: the newest configuration, then the most votes."""
    votes = Counter(claim.address for claim in claims)
    epochs: dict[str, int] = {}
    for claim in claims:
        epochs[claim.address] = max(claim.epoch, epochs.get(claim.address, 0))
    return sorted(votes, key=lambda address: (-epochs[address], -votes[address]))


def sentinel_claim(address: object, facts: object) -> Claim | None:
    """Read the replies to SENTINEL GET-MASTER-ADDR-BY-NAME and SENTINEL MASTER; None: the name is unknown.

    The first names a promoted replica at once, the second only after the fail-over ended; the second
    contains the epoch of the configuration.
    """
    if not isinstance(address, list) or len(address) != 2:
        return None
    host, port = (part.decode("utf-8", "replace") for part in address)
    return Claim(checked(join_address(host, int(port))), _epoch(facts))


def is_failing_over(facts: object) -> bool:
    """Return whether the sentinel that answered SENTINEL MASTER so replaces the master at this moment."""
    return b"failover_in_progress" in _named(facts).get(b"flags", b"")


def promoted_claim(facts: object, replicas: object) -> Claim | None:
    """Return the replica that this sentinel, elected for it, is making master, of those in SENTINEL REPLICAS.

    Others hear of it when the sentinel has seen the new role, up to a second after the promotion. The claim
    belongs to the configuration to come; it counts once the replica itself confirms that it is master.
    """
    for replica in replicas if isinstance(replicas, list) else []:
        named = _named(replica)
        if b"promoted" in named.get(b"flags", b"") and b"ip" in named and b"port" in named:
            host, port = named[b"ip"].decode("utf-8", "replace"), named[b"port"]
            return Claim(checked(join_address(host, int(port))), _epoch(facts) + 1, is_coming=True)
    return None


def _named(flat: object) -> dict[bytes, bytes]:
    listed = flat if isinstance(flat, list) else []
    return dict(zip(listed[::2], listed[1::2], strict=False))


def _epoch(facts: object) -> int:
    epoch = _named(facts).get(b"config-epoch", b"0")
    return int(epoch) if epoch.isdigit() else 0


def moved_to(message: str, asked: str) -> str | None:
    """Return the address in a MOVED answer of ``asked``; None when it names nobody."""
    found = _MOVED.match(message)
    if found is None:
        return None
    host = found[1] or split_address(asked)[0]  # empty: the node does not know its own name; it is the one asked
    return checked(join_address(host.removeprefix("[").removesuffix("]"), int(found[2])))


def checked(address: str) -> str:
    """Return ``address``, if it is one that the board can carry.

    Raises:
        ValueError: it is not.
    """
    split_address(address)
    if len(address) > ENDPOINT_BYTES_MAX:
        raise ValueError("an address that is too long")
    return address


def is_master(role: object) -> bool:
    """Read the reply to ROLE."""
    return isinstance(role, list) and bool(role) and role[0] == MASTER


def summary(failures: Sequence[DiscoveryFailure]) -> str:
    """Return the claims and their sources, for people."""
    return ", ".join(f"{failure.asked}: {failure.reason}" for failure in failures)
