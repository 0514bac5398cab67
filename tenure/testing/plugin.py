"""The pytest plugin: ``tenure_cluster``, ``tenure_inline``, ``enqueued``, and no real Redis by accident."""

from supervisor.testing.plugin import (
    _tenure_refuses_real_servers,
    enqueued,
    pytest_addoption,
    pytest_configure,
    tenure_cluster,
    tenure_inline,
)

__all__ = [
    "_tenure_refuses_real_servers",
    "enqueued",
    "pytest_addoption",
    "pytest_configure",
    "tenure_cluster",
    "tenure_inline",
]
