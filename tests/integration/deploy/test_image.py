"""What the Dockerfile promises without an engine to build it; `make e2e-container` builds and runs it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def instruction(name: str) -> str:
    """Return what the last stage says of an instruction."""
    last = DOCKERFILE.rpartition("\nFROM ")[2].replace("\\\n", " ")
    return re.findall(rf"(?m)^{name} (.+)$", last)[-1]


def test_the_image_has_no_lint() -> None:
    """Pinned stages, no root at the end, no cache left behind."""
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert hadolint
    found = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)

    assert (found.returncode, found.stdout) == (0, "")


def test_the_command_is_process_one_and_nobody_is_root() -> None:
    """Signals reach it, it reaps what is orphaned, and an orchestrator can ask how it is."""
    entry, command = json.loads(instruction("ENTRYPOINT")), json.loads(instruction("CMD"))

    assert (entry[0], entry[-1], command) == ("env", "tenure", ["run"])
    assert all(each.startswith("--block-signal=") for each in entry[1:-1])
    assert instruction("USER") == "10001:10001"
    assert instruction("STOPSIGNAL") == "SIGTERM"
    assert "/livez" in instruction("HEALTHCHECK")


def test_tools_of_the_build_stay_in_the_build() -> None:
    """Two stages; of the first only the environment goes on."""
    assert DOCKERFILE.count("\nFROM ") == 2
    assert instruction("COPY --from=build").split() == ["/opt/tenure", "/opt/tenure"]
