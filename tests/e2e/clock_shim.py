"""A wall clock that steps, for a program that is not ours: a library in front of the C library's clock.

The well-known libfaketime ends a Redis server (it allocates before jemalloc is ready), so this
one is our own: three functions, and an offset in a file that is shared with the test.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_s;

__attribute__((constructor)) static void map_offset(void) {
  int file = open(getenv("CLOCK_SHIM_FILE"), O_RDONLY);
  void *page = mmap(NULL, sizeof *offset_s, PROT_READ, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) abort();
  offset_s = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = (int)syscall(SYS_clock_gettime, clock, now);
  if (!failed && offset_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset_s;
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec precise;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *now) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now) *now = precise.tv_sec;
  return precise.tv_sec;
}
"""


def find_compiler() -> str | None:
    """Return the C compiler of this machine."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


class ClockShim:
    """The library, compiled, and the offset that it adds."""

    def __init__(self, directory: Path) -> None:
        compiler = find_compiler()
        assert compiler, "stepping the clock of a server needs a C compiler: install cc, gcc or clang"
        source, self._library = directory / "clock_shim.c", directory / "clock_shim.so"
        source.write_text(SOURCE)
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", self._library, source], check=True)
        self._file = directory / "clock_offset"
        self._file.write_bytes(bytes(8))
        with self._file.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 8)

    @property
    def environ(self) -> dict[str, str]:
        """What a program must be started with."""
        return {"LD_PRELOAD": str(self._library), "CLOCK_SHIM_FILE": str(self._file)}

    def step(self, offset_s: int) -> None:
        """Let the program's wall clock be so far off from now on."""
        self._page[:8] = struct.pack("=q", offset_s)
