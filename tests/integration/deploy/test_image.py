"""What the Dockerfile promises without an engine to build it; `make e2e-container` builds and runs it."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer, UnixStreamServer

import pytest

from supervisor.app.configuration import load

ROOT = Path(__file__).parents[3]
TLS = ROOT / "tests/data/tls"
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
    *copied, target = instruction("COPY deploy/healthcheck.py").split()
    assert f"{target}healthcheck.py" in instruction("HEALTHCHECK")
    assert copied == ["deploy/defaults.yaml"]


def test_a_mounted_file_decides_over_the_image(tmp_path: Path) -> None:
    """A variable of the image would lie over the file: a sidecar bound to loopback would listen to the network."""
    environ = dict(re.findall(r"(TENURE_\w+)=(\S+)", instruction("ENV")))
    assert environ.keys() == {"TENURE_DEFAULTS"}
    assert environ["TENURE_DEFAULTS"] == "/opt/tenure/defaults.yaml"
    environ["TENURE_DEFAULTS"] = str(ROOT / "deploy/defaults.yaml")
    mounted = tmp_path / "tenure.yaml"
    mounted.write_text("web: {host: 127.0.0.1}\n")

    alone = load(files=[], environ=environ, flags={})
    assert (alone.settings.web.host, alone.settings.data_dir) == ("0.0.0.0", "/var/lib/tenure")
    assert alone.origin("web", "host").endswith("deploy/defaults.yaml:4")
    assert load(files=[mounted], environ=environ, flags={}).settings.web.host == "127.0.0.1"


class Health(BaseHTTPRequestHandler):
    """Answers as a tree in good health does."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/livez" else 404)
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize("kind", ["port", "health port", "TLS", "unix"])
def test_the_health_check_asks_where_the_tree_serves(tmp_path: Path, kind: str) -> None:
    """A tree behind a unix socket or TLS is alive too: asked elsewhere it would be killed for ever."""
    path = tmp_path / "http.sock"
    server = UnixStreamServer(str(path), Health) if kind == "unix" else TCPServer(("127.0.0.1", 0), Health)
    if kind == "TLS":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    port = str(server.server_address[1]) if kind != "unix" else ""
    environ = {
        "port": {"TENURE_WEB__HOST": "0.0.0.0", "TENURE_WEB__PORT": port},
        "health port": {"TENURE_WEB__HEALTH_PORT": port, "TENURE_WEB__PORT": "1", "TENURE_WEB__TLS_CERT_FILE": "x"},
        "TLS": {"TENURE_WEB__HOST": "127.0.0.1", "TENURE_WEB__PORT": port, "TENURE_WEB__TLS_CERT_FILE": "x"},
        "unix": {"TENURE_WEB__HOST": f"unix:{path}"},
    }[kind]
    status_of = runpy.run_path(str(ROOT / "deploy/healthcheck.py"))["status_of"]
    answering = threading.Thread(target=server.handle_request)
    answering.start()
    assert status_of(environ) == 200
    answering.join()
    server.server_close()
    path.unlink(missing_ok=True)
    with pytest.raises(OSError, match=r"refused|No such file"):
        status_of(environ)


def test_tools_of_the_build_stay_in_the_build() -> None:
    """Two stages; of the first only the environment goes on."""
    assert DOCKERFILE.count("\nFROM ") == 2
    assert instruction("COPY --from=build").split() == ["/opt/tenure", "/opt/tenure"]
