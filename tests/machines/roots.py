"""File systems to run things in, made from Debian's packages: a base image for the container, a machine for systemd."""

from __future__ import annotations

from pathlib import Path

from tests.machines.proof import run

SUITE = "trixie"  # its Python is the one the Dockerfile asks for, its systemd is 257
CACHE = Path("/var/tmp/tenure-machines")
"""Kept between runs: making one takes a minute or two, and downloads packages."""

_AS_PYTHON_IMAGE = (
    'ln -sf /usr/bin/python3 "$1/usr/local/bin/python3"; ln -sf /usr/bin/python3 "$1/usr/local/bin/python"; '
    'rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED'
)


def python_base() -> Path:
    """Return a tar file like the official Python image, for machines that no image registry is reachable from."""
    return _made("python.tar", ("python3", "python3-venv", "python3-pip", "ca-certificates"), hook=_AS_PYTHON_IMAGE)


def systemd_machine() -> Path:
    """Return a tar file of a Debian that boots."""
    return _made(
        "machine.tar", ("systemd", "systemd-sysv", "dbus", "procps", "python3", "python3-venv", "ca-certificates")
    )


def _made(name: str, packages: tuple[str, ...], *, hook: str = "") -> Path:
    path = CACHE / name
    if path.exists():
        return path
    print(f"making {path} from Debian {SUITE} (a minute or two)", flush=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished.tar")
    command = ["mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}"]
    run([*command, *([f"--customize-hook={hook}"] if hook else []), SUITE, str(unfinished)])
    unfinished.rename(path)
    return path
