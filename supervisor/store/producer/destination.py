"""Destination of a producer's runs: whether its cluster has replicas, and its queue workers.

Guarantees
    A producer whose cluster no replica of the database was ever seen to serve is refused, if the database holds other
    clusters and no configuration names this one; so is every call beside that one, on other threads and in other
    tasks. All else is a warning, once a minute for a queue.

Does not guarantee
    That what is enqueued runs: workers may end right after the check.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NoReturn

from supervisor.core.errors import EXIT_CONFIG, TenureError
from supervisor.core.units import SECOND_NS
from supervisor.store.queues.reads import Served

CHECK_NS = 60 * SECOND_NS
QUEUES_MAX = 1000
NAMES_SHOWN = 10

log = logging.getLogger("tenure.producer")


class UnknownClusterError(TenureError):
    """No replica of the cluster was ever seen in this database, which holds others. Nothing was enqueued."""

    exit_code = EXIT_CONFIG


class Destination:
    """Memory of which queues were checked."""

    def __init__(self, cluster: str, *, is_configured: bool) -> None:
        """Build it.

        Args:
            cluster: name of the cluster that runs are enqueued into.
            is_configured: whether a configuration names it, so that it is no mistake.
        """
        self._cluster = cluster
        self._is_configured = is_configured
        self._checked_ns: dict[str, int] = {}

    def is_due(self, queue: str, now_ns: int) -> bool:
        """Return whether ``queue`` must be checked now.

        Before the first judgement every caller must check, since none may enqueue into a cluster that will be refused;
        later one caller checks again, and the others go on.
        """
        checked_ns = self._checked_ns.get(queue)
        if checked_ns is None:
            return True
        if now_ns - checked_ns < CHECK_NS:
            return False
        self._checked_ns[queue] = now_ns
        return True

    def judge(self, queue: str, served: Served, others: Sequence[str], *, asked_ns: int) -> None:
        """Warn of a queue or a cluster without workers; the queue counts as checked from ``asked_ns`` on.

        Args:
            queue: the queue.
            asked_ns: the time that ``is_due`` was asked at.
            served: whether it is served.
            others: clusters that the database is known to hold.

        Raises:
            UnknownClusterError: the cluster is probably a mistake.
        """
        others = sorted(set(others) - {self._cluster}) if served is Served.NO_CLUSTER else ()
        if others and not self._is_configured:
            self._checked_ns.pop(queue, None)
            self._refuse(others)
        if len(self._checked_ns) >= QUEUES_MAX:
            self._checked_ns.clear()
        is_news = self._checked_ns.setdefault(queue, asked_ns) == asked_ns  # else another caller has warned
        if served is Served.YES or not is_news:
            return
        if served is Served.NO:
            log.warning(
                "no live worker takes runs from queue %s of cluster %s; they wait until a pool of `workers` names it",
                queue,
                self._cluster,
            )
            return
        log.warning("no replica of cluster %s was ever seen; its runs wait until one starts", self._cluster)

    def _refuse(self, others: Sequence[str]) -> NoReturn:
        shown = ", ".join(others[:NAMES_SHOWN]) + (" and more" if len(others) > NAMES_SHOWN else "")
        raise UnknownClusterError(
            f"no replica of cluster {self._cluster} was ever seen in this database, which holds {shown}; "
            f'name the cluster: TENURE_CONFIG, connect(config="tenure.yaml"), TENURE_CLUSTER or connect(url, '
            f"cluster=…). If {self._cluster} is right, start a replica of it first"
        )
