"""What control groups tell, whatever their version and wherever they are mounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.process.kernel import memory_kills, memory_kills_file, processor_pressure_percent

V2 = "0::/system.slice/tenure.service\n"
V1 = "4:cpu,memory:/docker/abc\n0::/\n"


def write(root: Path, files: dict[str, str]) -> tuple[Path, Path]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root / "sys", root / "proc"


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"proc/self/cgroup": V2, "sys/system.slice/tenure.service/memory.events": "low 0\noom 9\noom_kill 2\n"}, 2),
        ({"proc/self/cgroup": "0::/../other\n", "sys/memory.events": "oom_kill 3\n"}, 3),
        ({"proc/self/cgroup": V1, "sys/memory/docker/abc/memory.oom_control": "under_oom 0\noom_kill 4\n"}, 4),
        ({"proc/self/cgroup": V1, "sys/memory/memory.oom_control": "oom_kill_disable 0\noom_kill 5\n"}, 5),
        ({"proc/self/cgroup": V2, "proc/vmstat": "pgfault 1\noom_kill 6\n"}, 6),
        ({"proc/self/cgroup": V2, "sys/memory.events": "low 0\n"}, None),
        ({}, None),
    ],
)
def test_kills_for_memory_are_counted_where_they_stand(
    tmp_path: Path, files: dict[str, str], count: int | None
) -> None:
    """Our own group, the mount of a container, an old hierarchy, the whole machine; and nothing is nothing."""
    assert memory_kills(memory_kills_file(*write(tmp_path, files))) == count


def test_the_worse_of_machine_and_group_is_the_pressure(tmp_path: Path) -> None:
    """A quota of our own group starves us while the machine is idle."""
    line = "some avg10={} avg60=0.00 avg300=0.00 total=1\n"
    files = {
        "proc/pressure/cpu": line.format("1.50"),
        "proc/self/cgroup": V2,
        "sys/system.slice/tenure.service/cpu.pressure": line.format("75.00"),
    }
    assert processor_pressure_percent(*write(tmp_path, files)) == 75.0
    assert processor_pressure_percent(tmp_path / "no", tmp_path / "where") == 0.0
