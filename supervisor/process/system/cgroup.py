"""Control group readings of this process: processor pressure, and out-of-memory kills.

Both versions of control groups, and none at all: where a file is missing, the next one that has
nearly the same is asked, and in the end nothing is known.
"""

from __future__ import annotations

from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
PROC = Path("/proc")


def _own(controller: str, proc: Path) -> str:
    """Return the path of our group in a hierarchy: ``memory`` of version 1, or an empty name for version 2."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return "/"
    for line in lines:
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path
    return "/"


def _files(mount: Path, path: str, name: str) -> tuple[Path, ...]:
    """Return where a file of our group may be: in a container the path can be the host's, and the mount our own."""
    return mount / path.lstrip("/") / name, mount / name


def memory_kills_file(mount: Path = MOUNT, proc: Path = PROC) -> Path | None:
    """Return the file that counts processes of our group which the kernel killed for memory; None without one."""
    files = (
        *_files(mount, _own("", proc), "memory.events"),
        *_files(mount / "memory", _own("memory", proc), "memory.oom_control"),
        proc / "vmstat",  # of the whole machine, where we are in no group
    )
    return next((path for path in files if memory_kills(path) is not None), None)


def memory_kills(path: Path | None) -> int | None:
    """Return the count in such a file; None where there is none."""
    if path is None:
        return None
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    counts = (line.partition(" ")[2] for line in lines if line.startswith("oom_kill "))
    return next((int(count) for count in counts), None)


def processor_pressure_percent(mount: Path = MOUNT, proc: Path = PROC) -> float:
    """Return the share of the last ten seconds in which something waited for a processor; 0 where unknown."""
    found = 0.0
    # The machine's own pressure does not show a quota of our group.
    for path in (proc / "pressure/cpu", *_files(mount, _own("", proc), "cpu.pressure")):
        try:
            first = path.read_text().splitlines()[0]
        except (OSError, IndexError):
            continue  # a kernel without pressure information, or a group of version 1
        fields = dict(field.split("=") for field in first.split()[1:])
        found = max(found, float(fields.get("avg10", "0")))
    return found
