"""What may be released: ``python -m tests.releasing v1.2.3`` refuses a tag that is not the version of the tree.

Versions are PEP 440 with three numbers, ``1.2.3``; before it come ``1.2.3.dev1`` and ``1.2.3rc1``, after it, for a
repair of a release that is not the newest, ``1.2.3.1``. A chart needs Semantic Versioning, so its version is derived.
"""

from __future__ import annotations

import re
import sys

from supervisor.version import __version__

SCHEME = re.compile(
    r"(?P<base>(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*))"
    r"(?:\.dev(?P<dev>[1-9]\d*)|rc(?P<rc>[1-9]\d*)|\.(?P<hotfix>[1-9]\d*))?"
)


def chart_version(version: str) -> str:
    """Return the version of the chart that belongs to a version.

    Raises:
        ValueError: it is none that we release.
    """
    found = SCHEME.fullmatch(version)
    if found is None:
        raise ValueError(f"{version!r} is no version of ours: 1.2.3, 1.2.3.dev1, 1.2.3rc1 or 1.2.3.1")
    base, dev, rc, hotfix = found.group("base", "dev", "rc", "hotfix")
    if dev or rc:
        return f"{base}-dev.{dev}" if dev else f"{base}-rc.{rc}"
    return f"{base}+hotfix.{hotfix}" if hotfix else base


def refusal(tag: str, version: str) -> str | None:
    """Return why ``tag`` cannot be released from a tree of ``version``; None when it can."""
    try:
        chart_version(version)
    except ValueError as error:
        return f"supervisor/version.py: {error}"
    if tag != f"v{version}":
        return (
            f"the tag is {tag}, and supervisor/version.py says {version}: tag v{version}, or change the version first"
        )
    return None


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.releasing TAG")
    if why := refusal(sys.argv[1], __version__):
        sys.exit(f"not released: {why}")
