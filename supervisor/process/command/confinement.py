"""From a configured confinement to the steps of forked processes, with every reason why they could not."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.core.jobs.confinement import SYSTEM_PATHS, Confinement
from supervisor.process.command.spec import CommandRefusedError, Identity, Launch
from supervisor.process.system import landlock

_CGROUPS = "/sys/fs/cgroup"


@dataclass(frozen=True, slots=True)
class ConfinementFault:
    """One setting that this machine, or this process, cannot carry out."""

    setting: str
    message: str
    remedy: str


def faults(confinement: Confinement) -> Iterator[ConfinementFault]:
    """Yield the faults that keep programs from being started so, here and now."""
    for setting in ("user", "group"):
        wanted = getattr(confinement, setting)
        if wanted is None:
            continue
        if _number(setting, wanted) is None:
            yield ConfinementFault(
                setting, f"{wanted} is not known on this machine", f"make it, or name another {setting}"
            )
        elif os.geteuid() != 0 and not _is_own(setting, wanted):
            remedy = "remove it, or run such jobs in a tree of that user's"
            yield ConfinementFault(
                setting, f"can be changed by root alone, and this tree runs as uid {os.geteuid()}", remedy
            )
    if confinement.cgroup is not None:
        yield from _cgroup_faults(confinement.cgroup)
    if confinement.has_paths and landlock.version() == 0:
        setting = "write_paths" if confinement.write_paths else "read_paths"
        message = "needs Landlock, which this kernel does not have or has switched off"
        yield ConfinementFault(
            setting, message, "use Linux 5.13 or newer with lsm=landlock, or remove it and use a container"
        )


def confined(launch: Launch, confinement: Confinement) -> Launch:
    """Return ``launch`` so that it is carried out confined, and with the umask of its commands.

    Raises:
        CommandRefusedError: a user or group is not known any more.
    """
    read, write = tuple(confinement.read_paths), tuple(confinement.write_paths)
    paths = (read or SYSTEM_PATHS, write) if confinement.has_paths else None
    umask = Confinement.umask_at_start if confinement.umask is None else confinement.umask
    return replace(launch, identity=_identity(confinement), cgroup=confinement.cgroup, paths=paths, umask=umask)


def home_of(confinement: Confinement) -> dict[str, str]:
    """Return the variables that identify a program's user; none where it is the tree's."""
    entry = None if confinement.user is None else _user(confinement.user)
    return {} if entry is None else {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}


def _identity(confinement: Confinement) -> Identity | None:
    if confinement.user is None and confinement.group is None:
        return None
    user = _number("user", confinement.user) if confinement.user is not None else os.geteuid()
    entry = None if confinement.user is None else _user(confinement.user)
    if confinement.group is not None:
        group = _number("group", confinement.group)
    else:
        group = entry.pw_gid if entry is not None else user
    if user is None or group is None:
        raise CommandRefusedError(f"user {confinement.user} or group {confinement.group} is not known here any more")
    groups = os.getgrouplist(entry.pw_name, group) if entry is not None else [group]
    return Identity(user, group, tuple(groups))


def _user(wanted: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(int(wanted)) if wanted.isdecimal() else pwd.getpwnam(wanted)
    except (KeyError, OverflowError):
        return None


def _number(setting: str, wanted: str) -> int | None:
    """Return the id of a user or group; a number need not be known."""
    if wanted.isdecimal():
        return int(wanted) if int(wanted) < 2**32 - 1 else None
    try:
        return pwd.getpwnam(wanted).pw_uid if setting == "user" else grp.getgrnam(wanted).gr_gid
    except KeyError:
        return None


def _is_own(setting: str, wanted: str) -> bool:
    return _number(setting, wanted) == (os.geteuid() if setting == "user" else os.getegid())


def _cgroup_faults(path: str) -> Iterator[ConfinementFault]:
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(_CGROUPS):
        yield ConfinementFault("cgroup", f"{path} is not below {_CGROUPS}", "name the directory of a control group")
    elif not (real / "cgroup.procs").is_file():
        yield ConfinementFault(
            "cgroup", f"{path} is no control group", "make it: mkdir, then its limits (memory.max, pids.max)"
        )
    elif not os.access(real / "cgroup.procs", os.W_OK):
        remedy = "let the service manager delegate it (Delegate=yes), or run the tree as root"
        yield ConfinementFault("cgroup", f"{path} cannot be entered by uid {os.geteuid()}", remedy)
