"""The pytest plugin: the fixture ``tenure_cluster``."""

from supervisor.testing.plugin import tenure_cluster

__all__ = ["tenure_cluster"]
