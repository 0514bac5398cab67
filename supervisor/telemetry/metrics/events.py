"""Metrics of the web child: events sent and dropped, failed requests."""

from __future__ import annotations

from supervisor.telemetry.metric_files.slots import Counter

EVENTS = Counter("tenure_events_total", "Events that processes of this replica told, by reason.", ["reason"])
EVENTS_DROPPED = Counter(
    "tenure_events_dropped_total",
    "Events that found no room, by sink (recorder: in the process itself or in the pipe of the tree; stream; webhook; "
    "follower: a client of /api/v1/events that reads too slowly). Alarm on a rate that lasts.",
    ["sink"],
)
EVENTS_SENT = Counter(
    "tenure_events_sent_total",
    "Events that the web child passed on, by sink (stream, webhook).",
    ["sink"],
)
HTTP_FAILURES = Counter(
    "tenure_http_failures_total", "Requests answered with 500 because of an error in the program. Alarm on any."
)
TOKENS_REFUSED = Counter(
    "tenure_http_tokens_refused_total",
    "Requests over HTTP with a token that is unknown or has ended. Alarm on a rate that lasts: somebody guesses, or a "
    "client was forgotten at a rotation.",
)
HEALTHCHECKS = Counter(
    "tenure_healthchecks_total",
    "Checks of /livez, /readyz and /healthz that somebody asked for over HTTP, by name, type and status (success, "
    "error).",
    ["name", "type", "status"],
)
