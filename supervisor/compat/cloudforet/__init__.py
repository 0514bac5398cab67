"""What services of Cloudforet import in place of ``spaceone.core``: docs/cloudforet-services.md.

``config`` and ``queue`` are modules, as they are there.
"""

from __future__ import annotations

from supervisor.compat.cloudforet import config, queue
from supervisor.compat.cloudforet.locator import Locator
from supervisor.compat.cloudforet.schedulers import (
    BaseScheduler,
    BaseWorker,
    CronScheduler,
    HourlyScheduler,
    IntervalScheduler,
    schedule_handler,
)
from supervisor.compat.cloudforet.service import (
    BaseManager,
    BaseService,
    authentication_handler,
    authorization_handler,
    check_required,
    event_handler,
    mutation_handler,
    transaction,
)

__all__ = [
    "BaseManager",
    "BaseScheduler",
    "BaseService",
    "BaseWorker",
    "CronScheduler",
    "HourlyScheduler",
    "IntervalScheduler",
    "Locator",
    "authentication_handler",
    "authorization_handler",
    "check_required",
    "config",
    "event_handler",
    "mutation_handler",
    "queue",
    "schedule_handler",
    "transaction",
]
