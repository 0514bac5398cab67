"""Names in scripts: each that a script uses is defined, in it or in a library that it includes."""

from __future__ import annotations

import struct
from typing import Any

from lupa import lua51

from supervisor.store.scripts import script, script_names

GIVEN = frozenset(
    [
        "ARGV",
        "KEYS",
        "cjson",
        "error",
        "ipairs",
        "math",
        "next",
        "pairs",
        "pcall",
        "redis",
        "select",
        "string",
        "table",
        "tonumber",
        "tostring",
        "type",
        "unpack",
    ]
)
"""What a script of Redis and Lua 5.1 itself have that these use."""
GETGLOBAL, SETGLOBAL = 5, 7


class Bytecode:
    """Reads what ``string.dump`` writes: Lua 5.1, 64 bits, little-endian (lundump.c)."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 12  # behind the header

    def numbers(self, form: str) -> tuple[Any, ...]:
        """Read numbers as ``struct`` names them."""
        found = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return found

    def count(self) -> int:
        """Read the length of a list."""
        (found,) = self.numbers("<i")
        return int(found)

    def text(self) -> str:
        """Read a string."""
        (size,) = self.numbers("<Q")
        found = self._data[self._at : self._at + max(size - 1, 0)]
        self._at += size
        return found.decode("latin-1")

    def globals_of_function(self) -> set[str]:
        """Read a function with those in it, and return the global names that they read or write."""
        self.text()
        self.numbers("<ii4B")
        code = self.numbers(f"<{self.count()}I")
        constants = [self._constant() for _ in range(self.count())]
        found = {constants[word >> 14] for word in code if word & 63 in {GETGLOBAL, SETGLOBAL}}
        for _ in range(self.count()):
            found |= self.globals_of_function()
        self.numbers(f"<{self.count()}i")
        for _ in range(self.count()):
            self.text()
            self.numbers("<ii")
        for _ in range(self.count()):
            self.text()
        return found

    def _constant(self) -> str:
        (kind,) = self.numbers("<B")
        if kind == 4:
            return self.text()
        self.numbers({0: "<", 1: "<B", 3: "<d"}[kind])
        return ""


def globals_of(source: str) -> set[str]:
    """Return the global names that ``source`` uses, in whatever branch."""
    runtime = lua51.LuaRuntime(encoding=None)
    dump = runtime.eval(b"function(source) return string.dump(assert(loadstring(source))) end")
    return Bytecode(dump(source.encode())).globals_of_function()


def test_no_script_uses_a_name_that_nothing_defines() -> None:
    """A function that had moved to another library was nil in one script, behind a ``pcall`` that hid it on fakeredis."""
    assert globals_of("local a = 1; return function() if a then b = pcall(c, a) end end") == {"b", "pcall", "c"}
    unknown = {name: globals_of(script(name).source) - GIVEN for name in script_names()}
    assert not {name: names for name, names in unknown.items() if names}
