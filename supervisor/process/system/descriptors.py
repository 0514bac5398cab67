"""The limit of open files that this process and its children have."""

from __future__ import annotations

import resource

from supervisor.core.errors import ConfigError, Problem

DESCRIPTORS_MIN = 1024
"""The web child has 64 connections, 64 of gRPC and its own files; a worker has those that its jobs open."""
DESCRIPTORS_LEAST = 64
"""A child of a tree with the default settings has some 50 descriptors before it serves anybody."""


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to ``DESCRIPTORS_MIN``, or as far as the hard limit allows.

    Raises:
        ConfigError: the hard limit is below ``DESCRIPTORS_LEAST``; with it no child would come up.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MIN if hard == resource.RLIM_INFINITY else min(DESCRIPTORS_MIN, hard)
    if wanted < DESCRIPTORS_LEAST:
        message = f"the hard limit of open files is {hard}, and a tree needs {DESCRIPTORS_LEAST} at least"
        remedy = f"raise it to {DESCRIPTORS_MIN}: ulimit -n, LimitNOFILE=, --ulimit nofile="
        raise ConfigError([Problem("this machine", "", message, remedy)])
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descriptors_short() -> int | None:
    """Return the soft limit of open files where it is below ``DESCRIPTORS_MIN``, else None."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY or soft >= DESCRIPTORS_MIN else soft
