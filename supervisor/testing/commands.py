"""The commands of fakeredis for scripts, without what only its connections need.

Guarantees
    What a command does, how its arguments are read and how its keys are written back is fakeredis'
    own code. What follows from the name and the number of arguments is found once for the process.

Does not guarantee
    Keyspace notifications. A command that asks for more than this, or that is wrong, goes fakeredis' own way.
"""

# ruff: noqa: SLF001 - it stands on the inside of fakeredis; the comparison with fakeredis' own way guards that

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from fakeredis import _msgs as msgs
from fakeredis._commands import SUPPORTED_COMMANDS, Key
from fakeredis._core import CommandItem
from fakeredis._helpers import SimpleError, decode_command_bytes
from fakeredis._socket import FakeSocket

FORMS_MAX = 4096  # names with numbers of arguments
OTHER_WAY = {msgs.FLAG_NO_SCRIPT, msgs.FLAG_SKIP_CONVERT_TO_RESP2}


LENGTHS = {"hlen", "llen", "scard", "xlen", "zcard"}  # two commands in five of the scripts: the length of a value


class _Form(NamedTuple):
    """One command with one number of arguments."""

    function: Callable[..., Any]
    keys: tuple[tuple[int, type | None, Callable[[], Any]], ...]  # place, type, and what stands for a missing key
    decoders: tuple[tuple[int, Callable[[bytes], Any]], ...]
    removes_empty: bool
    is_length: bool


@lru_cache(FORMS_MAX)
def _form(name: bytes, count: int) -> _Form | None:
    """Return the form of a command, or None if only fakeredis' own way will do."""
    command = decode_command_bytes(name)
    signature: Any = SUPPORTED_COMMANDS.get(command)
    if signature is None or signature.flags & OTHER_WAY or "redis" not in signature.server_types:
        return None
    fixed, repeat = signature.fixed, signature.repeat
    more = count - len(fixed)
    if more < 0 or (more and (not repeat or more % len(repeat))):
        return None
    types = list(enumerate([*fixed, *(repeat[index % len(repeat)] for index in range(more))]))
    keys = [(index, each) for index, each in types if isinstance(each, Key)]
    if any(key.missing_return is not Key.UNSPECIFIED for _, key in keys):
        return None
    creates = msgs.FLAG_DO_NOT_CREATE not in signature.flags
    return _Form(
        getattr(FakeSocket, signature.func_name),
        tuple((index, key.type_, _blank(key.type_ if creates else None)) for index, key in keys),
        tuple((index, each.decode) for index, each in types if each is not bytes and not isinstance(each, Key)),
        msgs.FLAG_LEAVE_EMPTY_VAL not in signature.flags,
        command in LENGTHS,
    )


def _blank(kind: type | None) -> Callable[[], Any]:
    return (lambda: None) if kind is None or kind is bytes else kind


def execute(socket: Any, name: bytes, args: list[Any]) -> Any:
    """Run one command of a script on the data behind ``socket``; return its result as fakeredis' function made it.

    Raises:
        SimpleError: the command was refused.
    """
    form = _form(name, len(args))
    if form is None:
        return _other_way(socket, name, args)
    function, keys, decoders, removes_empty, is_length = form
    for index, decode in decoders:
        args[index] = decode(args[index])
    database, items = socket._db, []
    values = database._dict
    for index, kind, blank in keys:
        key = args[index]
        stored = values.get(key)
        if stored is not None and stored.expireat is not None and stored.expireat < database.time:
            stored = values.pop(key) and None
        if stored is not None and kind is not None and type(stored.value) is not kind:
            raise SimpleError(msgs.WRONGTYPE_MSG)
        if is_length:
            return 0 if stored is None else len(stored.value)
        args[index] = item = CommandItem(key, database, stored, blank() if stored is None else None)
        items.append(item)
    try:
        return function(socket, *args)
    finally:
        for item in items:
            if item._modified:
                item.writeback(removes_empty)


def _other_way(socket: Any, name: bytes, args: list[Any]) -> Any:
    command = decode_command_bytes(name)
    if command == "pubsub":
        command, args = f"{command} {decode_command_bytes(args[0])}", args[1:]  # its subcommands are commands there
    function, signature = socket._name_to_func(command)
    result = socket._run_command(function, signature, args, True)  # noqa: FBT003 - positional there
    if isinstance(result, SimpleError):
        raise result
    return result
