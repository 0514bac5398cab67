"""Every metric, by subject: unit in the name, meaning and alarm in the help.

Processes of the tree write those of ``STORED``; ``COMPUTED`` are worked out by the web child
at each scrape. docs/metrics.md is this list, kept true by a test. A new metric is defined in the module of
its subject, and is here by that alone.
"""

from __future__ import annotations

from prometheus_client.metrics import MetricWrapperBase

from supervisor.telemetry.metric_files.series import limit as limit
from supervisor.telemetry.metric_files.series import unused_rules as unused_rules
from supervisor.telemetry.metric_files.slots import claim_slot as claim_slot
from supervisor.telemetry.metric_files.slots import exposition as exposition
from supervisor.telemetry.metric_files.slots import forget as forget
from supervisor.telemetry.metric_files.slots import prepare as prepare
from supervisor.telemetry.metric_files.slots import register
from supervisor.telemetry.metrics.computed import *  # noqa: F403 - one name more would be one place more to forget
from supervisor.telemetry.metrics.computed import Computed as Computed
from supervisor.telemetry.metrics.election import *  # noqa: F403 - as above
from supervisor.telemetry.metrics.runs import *  # noqa: F403 - as above
from supervisor.telemetry.metrics.scheduling import *  # noqa: F403 - as above

STORED = tuple(one for one in globals().values() if isinstance(one, MetricWrapperBase))
COMPUTED = tuple(one for one in globals().values() if isinstance(one, Computed))
register(STORED)
