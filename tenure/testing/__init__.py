"""A kit for tests of programs that use Tenure: a whole cluster in one thread, under a driven clock.

Needs the extra ``testing``. Names are loaded when first used, so that the pytest plugin costs nothing where nobody
uses it. The fixtures ``tenure_cluster`` (its type is ``ClusterFactory``), ``tenure_inline`` (``Cluster``) and
``enqueued`` are there wherever Tenure is installed beside pytest.
"""

from tenure.lazy_names import lazy_names

TYPE_CHECKING = False  # as ``typing`` has it, without importing that
if TYPE_CHECKING:
    from supervisor.testing.cluster import Cluster, ClusterFactory
    from supervisor.testing.contexts import job_context
    from supervisor.testing.plugins import plugin_conformance
    from supervisor.testing.runs import EnqueuedRun, Finished
    from supervisor.testing.servers import start_server

__all__ = ["Cluster", "ClusterFactory", "EnqueuedRun", "Finished", "job_context", "plugin_conformance", "start_server"]

_MODULES = {
    "Cluster": "supervisor.testing.cluster",
    "ClusterFactory": "supervisor.testing.cluster",
    "EnqueuedRun": "supervisor.testing.runs",
    "Finished": "supervisor.testing.runs",
    "job_context": "supervisor.testing.contexts",
    "plugin_conformance": "supervisor.testing.plugins",
    "start_server": "supervisor.testing.servers",
}

if not TYPE_CHECKING:  # a type checker that saw it would take every misspelt name for a public one
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
