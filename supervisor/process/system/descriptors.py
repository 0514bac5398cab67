"""The limit of open files that this process and its children have."""

from __future__ import annotations

import resource

DESCRIPTORS_MIN = 1024
"""The web child has 64 connections, 64 of gRPC and its own files; a worker has those that its jobs open."""


def descriptors_short() -> int | None:
    """Return the soft limit of open files where it is below ``DESCRIPTORS_MIN``, else None."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY or soft >= DESCRIPTORS_MIN else soft
