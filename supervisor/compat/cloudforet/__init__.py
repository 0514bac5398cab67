"""Replacement of ``spaceone.core`` for services of Cloudforet: docs/cloudforet-services.md.

``cache``, ``config``, ``queue`` and ``utils`` are modules, as they are there.
"""

from __future__ import annotations

from typing import Any

from supervisor.compat.cloudforet import cache, config, queue
from supervisor.compat.cloudforet import conversions as utils
from supervisor.compat.cloudforet.conversions import load_yaml_from_file
from supervisor.compat.cloudforet.locator import Locator
from supervisor.compat.cloudforet.parameters import (
    append_keyword_filter,
    append_query_filter,
    change_value_by_rule,
    check_required,
    convert_model,
    set_query_page_limit,
)
from supervisor.compat.cloudforet.schedulers import (
    BaseScheduler,
    BaseWorker,
    CronScheduler,
    HourlyScheduler,
    IntervalScheduler,
    schedule_handler,
)
from supervisor.compat.cloudforet.service import (
    BaseConnector,
    BaseManager,
    BaseService,
    SpaceConnector,
    authentication_handler,
    authorization_handler,
    event_handler,
    mutation_handler,
    transaction,
)

_MODELS = "models stay with the database library that they were made for"
_SERVERS = "its servers for gRPC and REST are not part of a scheduler or worker"
MISSING = {
    "MongoModel": _MODELS,
    "QuerySet": _MODELS,
    "BaseAPI": _SERVERS,
    "GRPCServer": _SERVERS,
    "PluginServer": "plugin servers do not move; write a plugin of Tenure's",
    "JWTUtil": "tokens are made and verified by the service itself",
    "JWTAuthenticator": "tokens are made and verified by the service itself",
}
"""Names of Cloudforet's core that services import, and why there is none of that name here."""

__all__ = [
    "BaseConnector",
    "BaseManager",
    "BaseScheduler",
    "BaseService",
    "BaseWorker",
    "CronScheduler",
    "HourlyScheduler",
    "IntervalScheduler",
    "Locator",
    "SpaceConnector",
    "append_keyword_filter",
    "append_query_filter",
    "authentication_handler",
    "authorization_handler",
    "cache",
    "change_value_by_rule",
    "check_required",
    "config",
    "convert_model",
    "event_handler",
    "load_yaml_from_file",
    "mutation_handler",
    "queue",
    "schedule_handler",
    "set_query_page_limit",
    "transaction",
    "utils",
]


def __getattr__(name: str) -> Any:
    """Raise for an import of a name that Cloudforet's core has and this package lacks, with the reason.

    Raises:
        ImportError: it is one of those.
        AttributeError: it is not known at all.
    """
    why = MISSING.get(name)
    if why is not None:
        raise ImportError(f"{name} of spaceone.core is not here: {why}; see docs/cloudforet-services.md", name=__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
