"""Changes of a domain sync: those between the known domains and the source's list. Pure; writes nothing.

Guarantees
    Deciding again after the changes were made decides on none: a sync is idempotent.
    Whatever the upstream renamed, swapped or made anew, the writes can be done in the order
    ``released``, ``written``, ``vanished`` without two domains ever holding one name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tenure.jobs.identity.models import ENABLED, NAME_CHARS
from tenure.jobs.identity.source import UpstreamDomain

SHOWN_MAX = 5


class SourceConflictError(ValueError):
    """The source lists domains that another source owns. Nothing was written."""


class TooManyDisabledError(ValueError):
    """The source no longer lists more domains than one sync may disable. Nothing was written."""


@dataclass(frozen=True, slots=True)
class KnownDomain:
    """A domain as the table has it."""

    id: str
    name: str
    tenant: str
    state: str
    source: str
    vanished: int | None


@dataclass(slots=True)
class Changes:
    """The writes of one sync, and their counts."""

    released: list[tuple[str, str]] = field(default_factory=list)  # id, and the name it gives way under
    written: list[tuple[UpstreamDomain, str]] = field(default_factory=list)  # with the state that it shall have
    vanished: list[str] = field(default_factory=list)
    created: int = 0
    updated: int = 0
    enabled: int = 0
    unchanged: int = 0


@dataclass(frozen=True, slots=True)
class Bound:
    """Limit of the enabled domains of a source that one sync may disable: a count, or a share of them."""

    count: int | None = None
    percent: float = 100.0

    @classmethod
    def parse(cls, value: str | int) -> Bound:
        """Parse a bound: a count such as ``25``, or a share such as ``10%``.

        Raises:
            ValueError: it is neither.
        """
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return cls(count=value)
        share = re.fullmatch(r"(\d{1,3}(?:\.\d{1,3})?) ?%", value.strip()) if isinstance(value, str) else None
        if share is None or float(share[1]) > 100:
            raise ValueError(f"max_disabled must be a count from 0 on, or a share from 0% to 100%, got {value!r}")
        return cls(percent=float(share[1]))

    def allowed(self, enabled: int) -> int:
        """Return how many of ``enabled`` domains it allows; a share is rounded up, so that one of few may go."""
        return self.count if self.count is not None else math.ceil(enabled * self.percent / 100)

    def refuse(self, source: str, changes: Changes, known: Sequence[KnownDomain]) -> None:
        """Refuse changes that disable more than it allows.

        Raises:
            TooManyDisabledError: names the number, and the way to let it pass.
        """
        enabled = sum(domain.source == source and domain.state == ENABLED for domain in known)
        allowed, gone = self.allowed(enabled), len(changes.vanished)
        if gone > allowed:
            bound = str(allowed) if self.count is not None else f"{self.percent:g}% ({allowed})"
            raise TooManyDisabledError(
                f"source {source} no longer lists {gone} of its {enabled} enabled domains, and max_disabled allows "
                f"{bound}; nothing was changed. If they are meant to go, run it once with max_disabled: {gone}"
            )


def decide(source: str, upstream: Sequence[UpstreamDomain], known: Sequence[KnownDomain]) -> Changes:
    """Return the changes that make the domains of ``source`` those that ``upstream`` lists.

    Args:
        source: the owner of the entries that ``upstream`` lists.
        upstream: ids and names each listed once.
        known: every domain of ``source``, and those of others that share an id or name with ``upstream``.

    Raises:
        SourceConflictError: names domains that belong to another source.
    """
    own = {domain.id: domain for domain in known if domain.source == source}
    _refuse_conflicts(source, upstream, [domain for domain in known if domain.source != source])
    changes = Changes()
    listed = {domain.id for domain in upstream}
    changes.vanished = [one.id for one in own.values() if one.id not in listed and one.state == ENABLED]
    changes.released = _released(own, {domain.name: domain.id for domain in upstream}, listed)
    for domain in upstream:
        _decide_one(changes, domain, own.get(domain.id))
    return changes


def _decide_one(changes: Changes, domain: UpstreamDomain, before: KnownDomain | None) -> None:
    if before is None:
        changes.created += 1
        changes.written.append((domain, ENABLED))
        return
    is_back = before.vanished is not None
    is_changed = (before.name, before.tenant) != (domain.name, domain.tenant)
    changes.enabled += is_back
    changes.updated += is_changed
    if is_back or is_changed:
        # One that somebody DISABLED stays so: that is not ours to undo.
        changes.written.append((domain, ENABLED if is_back else before.state))
    else:
        changes.unchanged += 1


def _released(own: Mapping[str, KnownDomain], takers: Mapping[str, str], listed: set[str]) -> list[tuple[str, str]]:
    """Return who must give up a name first, because another domain gets it in this sync."""
    return [
        (one.id, f"~{one.id}" if one.id in listed else f"{one.name[:NAME_CHARS]}~{one.id}")
        for one in own.values()
        if takers.get(one.name, one.id) != one.id
    ]


def _refuse_conflicts(source: str, upstream: Sequence[UpstreamDomain], others: Sequence[KnownDomain]) -> None:
    by_id = {domain.id: domain for domain in others}
    by_name = {domain.name: domain for domain in others}
    found = [
        f"{domain.name!r} (id {domain.id}) belongs to source {other.source}"
        for domain in upstream
        if (other := by_id.get(domain.id) or by_name.get(domain.name)) is not None
    ]
    if found:
        more = f" and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
        raise SourceConflictError(
            f"source {source} lists domains of another: {'; '.join(found[:SHOWN_MAX])}{more}; "
            f"if it replaces the other, give both the same source_name"
        )
