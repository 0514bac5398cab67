"""A program that is the command: its own job, plugin and hook, none of them listed in a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from supervisor.main import main
from tenure import Plugin, job


@job(name="mine.report")
def report(who: str = "nobody") -> str:
    """Return a greeting."""
    return f"hello {who}"


class Hello(Plugin):
    """A plugin that is registered by nothing but the call below."""

    name = "hello"
    version = "1.0"

    def init(self, options: dict[str, Any]) -> dict[str, Any]:
        """Say what it has."""
        return {"kinds": sorted(options)}

    def verify(self, options: dict[str, Any], secrets: dict[str, Any]) -> None:
        """Need nothing."""

    def run(self, options: dict[str, Any], secrets: dict[str, Any], task: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield one result."""
        yield {"state": "SUCCESS"}


class Closed:
    """A hook that lets nothing of one schedule pass."""

    def gate(self, fire: Any) -> str | None:
        """Say why not."""
        return "closed today"


if __name__ == "__main__":
    main(plugins=[Hello], jobs=[report], hooks={"sundays": Closed})
