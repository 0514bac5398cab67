"""Commands in a directory where somebody else may have put files."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from supervisor import trust
from supervisor.cli.options import read_settings
from supervisor.core.errors import ConfigError
from supervisor.settings.overrides import Flag
from supervisor.settings.schedules.complete import import_jobs
from supervisor.settings.schedules.search_path import search_here
from tests.kit.users import as_nobody


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "path_hooks", list(sys.path_hooks))
    return tmp_path


@pytest.mark.parametrize("name", ["tenure.yaml", "config/tenure.yaml", "conf.d/more.yaml"])
def test_a_configuration_that_others_may_write_is_read_only_if_it_is_named(here: Path, name: str) -> None:
    """It names code that runs; a job may have left it where an administrator works."""
    (here / "tenure.yaml").write_text("cluster: planted\n") if "conf.d" in name else None
    file = here / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("cluster: planted\n")
    file.chmod(0o666)

    with pytest.raises(ConfigError, match=rf"{name}: is not read by itself: everybody may write.*--config"):
        read_settings(())
    assert read_settings((file,)).settings.cluster == "planted"

    file.chmod(0o600)
    assert read_settings(()).settings.cluster == "planted"


def test_a_configuration_of_another_user_is_not_read_by_itself(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As git does not take the settings of a repository that somebody else owns."""
    (here / "tenure.yaml").write_text("cluster: planted\n")
    if os.geteuid() == 0:
        os.chown(here / "tenure.yaml", 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)

    with pytest.raises(ConfigError, match="belongs to uid"):
        read_settings(())


def test_drop_ins_that_somebody_else_put_beside_a_named_file_are_not_read(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In /tmp anybody makes a conf.d, and what lies in it names code. Nobody named that."""
    named, drop_ins = here / "tenure.yaml", here / "conf.d"
    named.symlink_to("/dev/null")  # root's
    drop_ins.mkdir()
    (drop_ins / "more.yaml").write_text("jobs: [planted]\n")
    if os.geteuid() == 0:
        os.chown(drop_ins, 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
    here.chmod(0o1777)

    with pytest.raises(
        ConfigError, match=r"conf.d: is not read by itself: it belongs to uid .* everybody may .*--config"
    ):
        read_settings((named,))
    assert read_settings((named, drop_ins)).settings.jobs == ("planted",), "it is named, too"

    named.unlink()
    named.write_text("cluster: theirs\n")
    os.chown(named, drop_ins.stat().st_uid, -1)
    assert read_settings((named,)).settings.jobs == ("planted",), "it is of whom the named file is"


def test_modules_of_a_working_directory_that_others_may_write_are_not_imported(here: Path) -> None:
    """The error says why, and how to trust it."""
    (here / "planted_module.py").write_text("raise SystemExit('ran')\n")
    here.chmod(0o777)

    search_here()
    (problem,) = import_jobs(["planted_module"])

    assert str(here) not in sys.path
    assert "there is no module planted_module" in str(problem)
    assert "everybody may write to it (mode 0777): name it by --module-path" in str(problem)


@pytest.mark.parametrize(
    "place", ["planted_a", "planted_a/__init__.py", "planted_a/part", "planted_a/part/deep.py", "planted_a/__pycache__"]
)
def test_a_module_that_others_may_write_is_not_imported_from_a_trusted_directory(here: Path, place: str) -> None:
    """Nor a package in a directory that they may write to, nor what a package imports, nor its bytecode."""
    (here / "planted_a/part").mkdir(parents=True)
    (here / "planted_a/__pycache__").mkdir()
    (here / "planted_a/__init__.py").write_text("")
    for file in ("planted_a/part/__init__.py", "planted_a/part/deep.py"):
        (here / file).write_text("")
    mode = (here / place).stat().st_mode
    (here / place).chmod(mode | 0o002)
    try:
        (problem,) = import_jobs(["planted_a.part.deep"])
        assert f"{here / place} is not imported: everybody may write to it" in str(problem)

        (here / place).chmod(mode)
        (problem,) = import_jobs(["planted_a.part.deep"])
        assert "registers no job" in str(problem)
    finally:
        for name in ("planted_a", "planted_a.part", "planted_a.part.deep"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "text",
    [
        "redis.password=s3cret",
        "redis.sentinel_password=s3cret",
        "redis={url: redis://h, password: s3cret}",
        "redis.url=redis://:s3cret@h",
        "events.webhook_token=s3cret",
        "plugins.p.secrets.key=s3cret",
    ],
)
def test_a_secret_in_a_command_line_is_refused(here: Path, text: str) -> None:
    """Every user of the machine reads it there; the error does not repeat it."""
    with pytest.raises(ConfigError, match=r"is a secret.*\(ps\).*\$\{file:/path\}") as refused:
        read_settings((), [text])

    assert "s3cret" not in str(refused.value)
    assert str(here) not in str(refused.value)


def test_a_reference_to_a_secret_may_stand_in_a_command_line(here: Path) -> None:
    """So may an address without a password."""
    (here / "pw").write_text("s3cret")

    settings = read_settings(
        (), [f"redis.password=${{file:{here}/pw}}"], {"redis.url": Flag("--redis-url", "redis://h")}
    ).settings

    assert settings.redis.password is not None
    assert settings.redis.password.get_secret_value() == "s3cret"


def test_a_configuration_in_a_place_that_may_not_be_entered_is_a_problem(here: Path) -> None:
    """As /etc/tenure is for users who are not in its group: told with its place, as a name that is too long is."""
    (here / "closed").mkdir(mode=0)
    here.chmod(0o711)

    with as_nobody(), pytest.raises(ConfigError, match=r"closed/tenure.yaml: cannot be read: Permission denied"):
        read_settings((Path("closed/tenure.yaml"),))
    with pytest.raises(ConfigError, match="cannot be read: File name too long"):
        read_settings((Path("x" * 300),))


def test_a_default_configuration_that_may_not_be_entered_is_a_problem(here: Path) -> None:
    """It is meant although nobody named it: a command that went on without it would ask another cluster."""
    (here / "config").mkdir(mode=0)
    here.chmod(0o711)

    with as_nobody(), pytest.raises(ConfigError, match=r"config/tenure.yaml: cannot be read: Permission denied"):
        read_settings(())


def test_a_default_configuration_that_could_not_be_judged_is_not_read(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever owns the place may open it as soon as it was looked at, with a file of theirs in it."""
    (here / "config").mkdir()
    (here / "config/tenure.yaml").write_text("cluster: planted\n")

    def judged_too_early(_path: Path) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("supervisor.trust.distrust_path", judged_too_early)

    with pytest.raises(ConfigError, match=r"config/tenure.yaml: cannot be read: Permission denied"):
        read_settings(())


def test_a_default_configuration_that_is_exchanged_after_it_was_judged_is_not_read(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever owns the directory may do that between the two: the file that is open is the one that counts."""
    planted = here / "planted.yaml"
    planted.write_text("cluster: planted\n")
    planted.chmod(0o666)
    file = here / "tenure.yaml"
    file.write_text("cluster: mine\n")
    judge = trust.distrust_path

    def exchanged(path: Path) -> str:
        why = judge(path)
        planted.rename(file)
        return why

    monkeypatch.setattr("supervisor.trust.distrust_path", exchanged)

    with pytest.raises(ConfigError, match=r"tenure.yaml: is not read by itself: everybody may write to it.*--config"):
        read_settings(())
    assert read_settings((file,)).settings.cluster == "planted"
