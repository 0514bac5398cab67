"""The fields of a line of the log in JSON that do not depend on its event; docs/log-schema.json is made from this.

An event adds fields of its own, of any type. In a line that was too long (``cut``), any value may be the
beginning of its text.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

_TS = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"
_TRACE = r"^[0-9a-f]{32}$"
_ROLE = r"^[a-z]+(-[A-Za-z0-9._-]+-[0-9]+)?$"


class LogLine(msgspec.Struct, kw_only=True, frozen=True):
    """One line."""

    ts: Annotated[str, Meta(pattern=_TS, description="when, in UTC")]
    level: Literal["debug", "info", "warning", "error", "critical"]
    event: Annotated[str, Meta(description="what; of libraries their message")]
    cluster: Annotated[str, Meta(description="as the setting")]
    replica: Annotated[str, Meta(description="which replica, and which start of it")]
    role: Annotated[str, Meta(pattern=_ROLE, description="which process: supervisor, agent, worker-io-0")]
    pid: Annotated[int, Meta(ge=1, description="of the process that wrote the line")]
    run: Annotated[str, Meta(description="id of the run that the line is about, or was logged in")] | UnsetType = UNSET
    job: Annotated[str, Meta(description="name of its job")] | UnsetType = UNSET
    schedule: Annotated[str, Meta(description="id of its schedule, if one fired it")] | UnsetType = UNSET
    attempt: Annotated[int, Meta(ge=1, description="which attempt at it")] | UnsetType = UNSET
    trace_id: Annotated[str, Meta(pattern=_TRACE, description="its trace, if there is one")] | UnsetType = UNSET
    logger: Annotated[str, Meta(description="of a library: the name of its logger")] | UnsetType = UNSET
    exception: Annotated[str, Meta(description="kind and message of an exception")] | UnsetType = UNSET
    trace: Annotated[list[str], Meta(description="where it came from, innermost first")] | UnsetType = UNSET
    lines_dropped: Annotated[int, Meta(ge=1, description="lines that could not be written")] | UnsetType = UNSET
    log_problem: Annotated[str, Meta(description="why the log file is not the one it should be")] | UnsetType = UNSET
    cut: Annotated[bool, Meta(description="the line was too long: some values are cut")] | UnsetType = UNSET


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a line."""
    (_,), components = msgspec.json.schema_components([LogLine], ref_template="{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **components["LogLine"],
        "title": "A line of Tenure's log",
        "description": "Events add fields of their own.",
    }
