"""Some replicas on one server, each with faults of its own: what the tests of the election start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from supervisor.core.errors import StoreUnavailableError
from supervisor.settings.sections.models import RedisSettings
from supervisor.store.client.sync_client import Store
from supervisor.store.election.leases import LeaseEvent, Leases, LeaseView
from supervisor.store.keys import Keys
from tests.e2e.faults import MODULE, Faults
from tests.e2e.pairs import CONFIG, ELECTION, JOBS, PERIOD_MS, Pair
from tests.e2e.servers import Server
from tests.e2e.trees import Tree, end_all
from tests.kit.waiting import wait_until

EVENTS_MAX = 1000


class Cluster(Pair):
    """Replicas by name; everything that a pair can do, and faults."""

    def __init__(
        self,
        start: Callable[..., Tree],
        directory: Path,
        url: str,
        store: Store,
        *,
        names: Sequence[str] = ("one", "two"),
        election: str = ELECTION,
    ) -> None:
        (directory / "e2e_faults.py").write_text(MODULE)
        (directory / "e2e_jobs.py").write_text(f"import e2e_faults  # noqa: F401\n{JOBS}")
        (directory / "tenure.yaml").write_text(CONFIG.format(url=url, period=PERIOD_MS, election=election))
        self.directory = directory
        self.store = store
        self.start = start
        self.leases = Leases(Keys("e2e"))
        self.faults = {name: Faults(directory / f"faults-{name}") for name in names}
        self.trees = [self.start_one(name) for name in names]
        for tree in self.trees:
            tree.wait_for("tree_ready")
        self.wait_for_fires(2)

    def start_one(self, name: str) -> Tree:
        """Start a replica; ``one-b`` is the replica ``one`` again, after its first tree ended."""
        replica = name.partition("-")[0]
        settings = ("--config", "tenure.yaml", "--set", f"replica={replica}", "--data-dir", f"data-{name}")
        return self.start(name, *settings, environ=self.faults[replica].environ)

    def faults_of(self, tree: Tree) -> Faults:
        """Return the faults of the replica that ``tree`` is."""
        return self.faults[tree.name.partition("-")[0]]

    def leader(self) -> Tree | None:
        """Return the tree that holds the lease."""
        holder = self.view().holder
        found = (tree for tree in self.trees if holder.startswith(f"{tree.name.partition('-')[0]}."))
        return next(found, None)

    def others(self, tree: Tree) -> list[Tree]:
        """Return every tree but one."""
        return [each for each in self.trees if each is not tree]

    def view(self) -> LeaseView:
        """Return the lease."""
        return self.store.run(self.leases.view())

    def answers(self) -> bool:
        """Whether Redis answers, which it does not while it loads its data."""
        with suppress(StoreUnavailableError):
            self.store.ping()
            return True
        return False

    def events(self) -> list[LeaseEvent]:
        """Return what happened to the lease, oldest first."""
        return self.store.run(self.leases.history(EVENTS_MAX))[::-1]

    def acquired(self) -> list[int]:
        """Return the epochs that were granted, in order."""
        return [each.epoch for each in self.events() if each.kind == "acquired"]

    def wait_for_other_leader(self, than: Tree) -> Tree:
        """Return who leads once it is not ``than``."""

        def look() -> Tree | None:
            found = self.leader()
            return found if found is not than else None

        found: Tree = wait_until(look, what=f"another leader than {than.name}")
        return found

    def prove(self) -> None:
        """Prove the history, and that epochs were granted in ascending order."""
        super().prove()
        assert self.acquired() == sorted(set(self.acquired())), "an epoch was granted twice or went back"


class Shared:
    """A cluster that serves one test after the other, with its server; made anew after a test that failed.

    Each test leaves it whole: every replica up, one leading.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._exits = ExitStack()
        self._cluster: Cluster | None = None
        self._server: Server | None = None

    def take(self) -> tuple[Cluster, Server]:
        """Return the cluster and its server, once somebody leads."""
        if self._cluster is None or self._server is None:
            directory = Path(
                self._exits.enter_context(TemporaryDirectory(prefix="tenure-e2e-", ignore_cleanup_errors=True))
            )
            self._server = Server(directory)
            self._exits.callback(self._server.kill)
            store = Store.connect(self._server.url, settings=RedisSettings(), name="e2e", timeout_s=20)
            self._exits.callback(store.close)
            trees: list[Tree] = []
            self._exits.callback(end_all, trees)

            def start(name: str, *arguments: str, environ: dict[str, str] | None = None) -> Tree:
                trees.append(Tree(directory, name, *arguments, environ=environ))
                return trees[-1]

            self._cluster = Cluster(start, directory, self._server.url, store, names=self._names)
        wait_until(self._cluster.leader, what="a leader")
        return self._cluster, self._server

    def drop(self) -> None:
        """End it; the next test gets another."""
        self._cluster = self._server = None
        self._exits.close()


def family(tree: Tree) -> list[psutil.Process]:
    """Return every process of a tree, the parent first."""
    return [psutil.Process(tree.pid), *tree.descendants()]


def metric(tree: Tree, name: str) -> float:
    """Return the sum of a metric's samples on /metrics."""
    lines = (line for line in tree.get("/metrics")[1].splitlines() if line.startswith((f"{name} ", f"{name}{{")))
    return sum(float(line.rpartition(" ")[2]) for line in lines)
