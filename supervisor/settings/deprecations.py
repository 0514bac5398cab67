"""Flags of kube-scheduler: those that still work, with a notice, and those that are refused with a remedy.

Guarantees
    A flag that works has the effect of the new one, and every use of it is in the notices of the load, with the
    version that will refuse it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

REMOVED_IN = "1.0"

OLD_FLAGS: Mapping[str, str] = {
    "--leader-elect-lease-duration": "election.lease_duration",
    "--leader-elect-retry-period": "election.renew_period",
    "--bind-address": "web.host",
}
"""Those that work, by their setting."""

FOREIGN_FLAGS: Mapping[str, str] = {
    "--leader-elect": "every replica takes part in the election, unless --election-participate=false",
    "--leader-elect-renew-deadline": "trust ends by itself, before the lease does (--election-lease-duration)",
    "--leader-elect-resource-lock": "the lease lies in Redis (--redis-url)",
    "--leader-elect-resource-name": "the lease is that of the cluster (--cluster)",
    "--leader-elect-resource-namespace": "the lease is that of the cluster (--cluster)",
    "--kubeconfig": "the lease lies in Redis, not in Kubernetes (--redis-url)",
    "-v": "write --log-level debug",
    "--v": "write --log-level debug",
}
"""Those that have no equal here, and what to write."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing about a configuration that works today and will not for ever."""

    where: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.name}: {self.text}"


def notices_of(options: Mapping[str, str]) -> Iterator[Notice]:
    """Yield notices about flags: of ``options``, each by the path of the setting that it gave."""
    for option in options.values():
        if option in OLD_FLAGS:
            new = f"--{OLD_FLAGS[option].replace('.', '-').replace('_', '-')}"
            text = f"is the old name of {new}; it will be refused from {REMOVED_IN} on"
            yield Notice("command line", option, text)
