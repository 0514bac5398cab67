"""Lines of real trees, held against the schema of the log."""

from __future__ import annotations

import msgspec

from supervisor.telemetry.log_lines.schema import LogLine


def follow_the_schema(log: bytes, *, where: str) -> None:
    """Fail at a line of ours in JSON that is not as docs/log-schema.json says; one that was cut may be."""
    for line in log.splitlines():
        if not line.startswith(b'{"ts":'):
            continue  # written by a program, on a terminal, or before there was a log
        try:
            found = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue  # the disk was full, or the process was killed
        problem = _problem(found)
        assert not problem or found.get("cut") is True, f"{where}: {problem}: {line.decode(errors='replace')}"


def _problem(found: object) -> str:
    try:
        msgspec.convert(found, type=LogLine)
    except msgspec.ValidationError as error:
        return str(error)
    return ""
