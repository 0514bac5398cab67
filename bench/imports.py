"""Costs of the public package in a program of users: ``python -m bench.imports``.

Each row is a fresh interpreter, its processor time above that of an empty one, and the memory that it added.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

ROUNDS = 15
ROWS = {
    "import tenure": "import tenure",
    "declare a job": "from tenure import job\n@job\ndef f(x: int) -> None: ...",
    "job with a context": "from tenure import Context, job\n@job\ndef f(c: Context) -> None: ...",
    "import redis (a peer's floor)": "import redis, redis.asyncio",
    "connect()": "from tenure import connect\nconnect('redis://127.0.0.1:1')",
    "connect() and a refused enqueue": (
        "import contextlib, tenure, tenure.errors\ntenure.connect('redis://127.0.0.1:1')\n"
        "with contextlib.suppress(tenure.errors.StoreUnavailableError): tenure.enqueue('mail')"
    ),
}
_MEASURE = """
import resource, time
used = lambda: time.process_time()
def kib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024
before, before_kib = used(), kib()
{code}
print(used() - before, kib() - before_kib)
"""


def measured(code: str) -> tuple[float, float]:
    """Return the median milliseconds of processor time and MiB that ``code`` costs."""
    samples = []
    for _ in range(ROUNDS):
        done = subprocess.run(
            [sys.executable, "-c", _MEASURE.format(code=code)], check=True, capture_output=True, text=True
        )
        samples.append([float(word) for word in done.stdout.split()])
    return 1000 * statistics.median(each[0] for each in samples), statistics.median(each[1] for each in samples) / 1024


if __name__ == "__main__":
    for name, code in ROWS.items():
        milliseconds, mib = measured(code)
        print(f"{name:32} {milliseconds:7.1f} ms of CPU {mib:6.1f} MiB")
