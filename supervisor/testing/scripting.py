"""Runs the project's Lua on fakeredis' data several times faster than fakeredis does: a simulation is mostly scripts.

Guarantees
    The keys, their types and every command are fakeredis' own: a test runs the same worlds both ways and
    compares their histories line by line.
    Each script is compiled once for the process. Its first run goes the whole way, with
    fakeredis' check that no global was assigned.

Does not guarantee
    Anything to a blocked client or to keyspace notifications: in a simulation nobody blocks.
"""

# ruff: noqa: SLF001 - it stands on the inside of fakeredis; the comparison with fakeredis' own way guards that

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any, TypeVar

import fakeredis
from fakeredis import _helpers
from fakeredis._socket._resp import convert_to_resp2
from lupa import lua51  # type: ignore[import-untyped]
from redis.exceptions import ResponseError

from supervisor.core.effects import Call
from supervisor.store.client.replies import fenced, translate
from supervisor.store.client.sync_client import Store
from supervisor.store.scripts import Script, script
from supervisor.store.wire.codec import text
from supervisor.testing.commands import execute

T = TypeVar("T")
Values = dict[bytes, Any]
"""The database of fakeredis: name to item."""

_FLAT = {bytes, int, type(None)}  # what a reply may hold to be a table of Lua as it is
_CHECKED: set[str] = set()  # scripts that ran once with fakeredis' own checks

# Puts KEYS and ARGV in place, runs the script and spreads a flat reply, so that it crosses to Python in one step.
_RUNNER = """
function(run, keys, argv)
  KEYS, ARGV = keys, argv
  local reply = run()
  if type(reply) ~= 'table' or reply.ok or reply.err or #reply == 0 or #reply > 1000 then
    return false, reply
  end
  for i = 1, #reply do
    local kind = type(reply[i])
    if kind ~= 'string' and kind ~= 'number' then
      return false, reply
    end
  end
  return true, unpack(reply)
end
"""


class QuickStore(Store):
    """A store whose scripts run in this process, on the data of one fake server."""

    def __init__(self) -> None:
        """Make an empty server of its own."""
        self.server = fakeredis.FakeServer()
        super().__init__(fakeredis.FakeRedis(server=self.server))
        link: Any = self.raw.connection_pool.make_connection()
        link.connect()
        self._link = link
        self._socket: Any = link._sock  # the server's end of the connection: it executes commands

    def newest(self, stream: str) -> tuple[int, int]:
        """Return the id of the newest entry of ``stream``, sending no command; (0, 0) without one, or a stream."""
        item = self._socket._db._dict.get(stream.encode())
        ids = getattr(item.value, "_ids", []) if item is not None else []
        return (ids[-1].ts, ids[-1].seq) if ids else (0, 0)

    def fields(self, key: str) -> dict[bytes, bytes]:
        """Return the fields of the hash ``key``, without sending a command."""
        item = self._socket._db._dict.get(key.encode())
        return dict(item.value._values) if item is not None else {}

    def entries(self, stream: str, after: tuple[int, int]) -> list[tuple[str, dict[str, str]]]:
        """Return the entries of ``stream`` after the id ``after``, without sending a command."""
        with self.server.lock:
            found = execute(self._socket, b"XRANGE", [stream.encode(), "({}-{}".format(*after).encode(), b"+"])
        return [
            (text(at), dict(zip(map(text, fields[::2]), map(text, fields[1::2]), strict=True))) for at, fields in found
        ]

    def copy(self) -> Values:
        """Return a copy of all data."""
        return deepcopy(self._socket._db._dict)

    def paste(self, data: Values) -> None:
        """Replace all data by the result of ``copy``; it may be pasted again."""
        values: Values = self._socket._db._dict
        values.clear()
        values.update(deepcopy(data))

    def run(self, call: Call[T], *, timeout_s: float | None = None, meanwhile: Callable[[], None] | None = None) -> T:
        """Run ``call`` now and return its parsed reply; see ``Store.run``."""
        del timeout_s
        if meanwhile is not None:
            meanwhile()
        item = script(call.script)
        try:
            if item.sha in _CHECKED:
                reply = self._execute(item, call)
            else:
                _CHECKED.add(item.sha)
                reply = self.raw.eval(item.source, len(call.keys), *call.keys, *call.args)
        except ResponseError as error:
            raise (fenced(error, call) or translate(error, where=self.where, operation=call.script)) from error
        return call.parse(reply)

    def _execute(self, item: Script, call: Call[Any]) -> Any:
        try:
            with self.server.lock:
                return _interpreter().run(self._socket, item, call)
        except _helpers.SimpleError as refused:
            raise ResponseError(refused.value) from refused


class _Interpreter:
    """One Lua state for all worlds of the process: they run one after the other, and scripts keep nothing."""

    def __init__(self) -> None:
        self._socket: Any = None
        self._compiled: dict[str, Any] = {}
        first = fakeredis.FakeRedis(server=fakeredis.FakeServer())
        first.eval("return 1", 0)
        # The Lua state that fakeredis prepared, with its cjson and its redis.error_reply.
        self._lua: Any = first.connection_pool.connection_kwargs["server"]._lua_runtime
        self._compile = self._lua.eval("function(source) return assert(loadstring(source)) end")
        self._run = self._lua.eval(_RUNNER)
        self._table = self._lua.table_from
        redis = self._lua.globals()[b"redis"]
        redis[b"call"], redis[b"pcall"] = self._call, self._pcall

    def run(self, socket: Any, item: Script, call: Call[Any]) -> Any:
        """Run one script on the data behind ``socket``."""
        self._socket, database = socket, socket._db
        database.time = vars(_helpers)["time"].time()  # the driven one, in a simulation
        compiled = self._compiled.get(item.sha)
        if compiled is None:
            compiled = self._compiled[item.sha] = self._compile(item.source.encode())
        socket._script_resp = 2
        try:
            is_flat, *reply = self._run(
                compiled,
                self._table([key.encode() for key in call.keys]),
                self._table([_encoded(value) for value in call.args]),
            )
        except lua51.LuaError as error:
            raise _helpers.SimpleError(f"ERR {error}") from error
        finally:
            socket._script_resp = None
            socket._subkey_events = []  # nobody hears of the fields that changed
        if is_flat:
            return [int(value) if isinstance(value, float) else value for value in reply]
        return _plain(socket._convert_lua_result(reply[0], nested=False))

    def _call(self, name: bytes, *args: Any) -> Any:
        socket = self._socket
        try:
            result = execute(socket, name, [each if type(each) is bytes else _encoded(each) for each in args])
        except _helpers.SimpleError as refused:
            result = refused
        kind = type(result)
        if kind is bytes or kind is int:
            return result
        if kind is list and _FLAT.issuperset(map(type, result)):
            return self._table([False if each is None else each for each in result])
        return socket._convert_redis_result(self._lua, convert_to_resp2(result))

    def _pcall(self, name: bytes, *args: Any) -> Any:
        try:
            return self._call(name, *args)
        except _helpers.SimpleError as refused:
            return self._table({b"err": refused.value.encode()})


@cache
def _interpreter() -> _Interpreter:
    return _Interpreter()


def _encoded(value: Any) -> bytes:
    """Return an argument of a command as the bytes that Redis would be sent."""
    if type(value) is bytes:
        return value
    if type(value) is str:
        return value.encode()
    return f"{value:.17g}".encode() if type(value) is float else str(value).encode()


def _plain(reply: Any) -> Any:
    if isinstance(reply, list):
        return [_plain(item) for item in reply]
    return reply.value if isinstance(reply, _helpers.SimpleString) else reply
