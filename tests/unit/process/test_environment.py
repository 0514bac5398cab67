"""An environment without its secrets, and with them again for the check of a reload."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from supervisor.process.system.environment import Withheld
from supervisor.process.system.linux import open_descriptors
from supervisor.settings.loader import load
from supervisor.settings.overrides import secret_variables

ODD = {b"TENURE_A": b"\xff=\n \x01", b"NAME": b"a=b=c", b"EMPTY": b"", b"LONG": b"x" * 100_000, b"n\xe4me": b"bytes"}


def holds(check: Callable[[], bool], environment: dict[bytes, bytes]) -> bool:
    """Whether ``check`` does, in a process that was started with ``environment`` and nothing else of ours."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.environb.clear()
            os.environb.update(environment)
            code = 0 if check() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def names(variables: dict[bytes, bytes]) -> list[str]:
    """Return their names as Python has them."""
    return [os.fsdecode(name) for name in variables]


def test_what_was_taken_is_gone_for_this_process_and_its_children() -> None:
    """Whatever bytes it holds; what nobody named stays."""

    def check() -> bool:
        Withheld([*names(ODD), "NEVER_SET"])
        seen = subprocess.check_output("/usr/bin/env", env=None).decode(errors="replace")
        return set(os.environb) == {b"PATH"} and "TENURE_A" not in seen and "bytes" not in seen and "PATH=/bin" in seen

    assert holds(check, {**ODD, b"PATH": b"/bin"})


def test_the_check_of_a_reload_has_it_back_byte_by_byte() -> None:
    """Variables are among what a configuration is made of."""

    def check() -> bool:
        withheld = Withheld(names(ODD))
        withheld.restore()
        return dict(os.environb) == ODD

    assert holds(check, ODD)


def test_the_memory_that_keeps_it_cannot_be_written() -> None:
    """A check must read what the start read."""

    def check() -> bool:
        Withheld(["A"])
        number = next(number for number, name in open_descriptors().items() if "tenure-environment" in name)
        with pytest.raises(PermissionError):
            os.pwrite(number, b"x", 0)
        return True

    assert holds(check, {b"A": b"secret"})


def test_the_kernel_does_not_show_it_either() -> None:
    """``/proc/<pid>/environ`` is the memory in which the program was started, whatever was unset since."""
    code = (
        "import os; from supervisor.process.system.environment import Withheld; Withheld(['TOKEN']);"
        "print(open('/proc/self/environ', 'rb').read())"
    )
    environ = {"TOKEN": "hunter2", "OTHER": "kept", "PYTHONPATH": os.pathsep.join(sys.path)}
    shown = subprocess.check_output([sys.executable, "-c", code], env=environ, text=True)

    assert "hunter2" not in shown
    assert "TOKEN=*******" in shown
    assert "OTHER=kept" in shown


def test_settings_and_what_they_name_are_secrets_of_the_tree() -> None:
    """Not what belongs to jobs, nor where the configuration is."""
    environ = {
        "DB_PW": "p",
        "JOB_TOKEN": "for jobs",
        "TENURE_REDIS__URL": "redis://h",
        "TENURE_CONFIG": "/etc/tenure.yaml",
        "TENURE_JOBS_DATABASE_URL": "of a job",
        "PATH": "/bin",
    }
    written = {"redis": {"password": "${env:DB_PW}"}, "webhooks": {"w": {"url": "http://h/${env:JOB_TOKEN}"}}}
    settings = load(files=(), environ=environ, flags=written).settings

    assert secret_variables(settings, environ) == {"DB_PW", "TENURE_REDIS__URL"}
