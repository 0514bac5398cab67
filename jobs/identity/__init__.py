"""Identity upkeep as jobs: tenant domains, their tokens and their endpoints, in SQL.

``models`` holds the tables, ``database`` opens one, and each job has a module of its own;
``source`` reads the input of ``domain_sync`` and ``changes`` decides the writes.
"""

from __future__ import annotations

from tenure.jobs.identity.domain_sync import domain_sync
from tenure.jobs.identity.endpoint_verification import endpoint_verification
from tenure.jobs.identity.token_cleanup import token_cleanup

__all__ = ["domain_sync", "endpoint_verification", "token_cleanup"]
