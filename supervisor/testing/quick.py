"""The commands that scripts send most, answered straight from fakeredis' data, as Lua sees the answers.

Guarantees
    Whatever is unusual (an absent key that would be made, another type, an option, an
    expiry) is answered with ``ASK``: then fakeredis itself does it.

Does not guarantee
    Anything to clients that block or watch: in a simulation there are none.
"""

# ruff: noqa: SLF001 - it stands on the inside of fakeredis; the comparison with fakeredis' own way guards that

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fakeredis import _helpers
from fakeredis._command_args_parsing import Float
from fakeredis.model import ExpiringMembersSet, Hash, XStream, ZSet

Values = dict[bytes, Any]
"""The database of fakeredis: name to item."""

ASK = object()
"""Stands for an answer that fakeredis must give."""


def time_of() -> float:
    """Return the time that fakeredis sees: the driven one, in a simulation."""
    seconds: float = vars(_helpers)["time"].time()
    return seconds


def encoded(value: Any) -> bytes:
    """Return an argument of a command as the bytes that Redis would be sent."""
    if type(value) is bytes:
        return value
    if type(value) is str:
        return value.encode()
    return f"{value:.17g}".encode() if type(value) is float else str(value).encode()


def _hash(values: Values, key: bytes) -> Any:
    """Return the fields of a hash, None without one; ASK when there is more to it."""
    item = values.get(key)
    if item is None:
        return None
    if type(item.value) is not Hash or item.expireat is not None or item.value._expiry_heap:
        return ASK
    return item.value._values


def _hget(values: Values, key: bytes, field: Any) -> Any:
    fields = _hash(values, key)
    if fields is ASK:
        return ASK
    return False if fields is None else fields.get(encoded(field), False)


def _hmget(values: Values, key: bytes, *names: Any) -> Any:
    fields = _hash(values, key)
    if fields is ASK:
        return ASK
    return [False if fields is None else fields.get(encoded(name), False) for name in names]


def _hexists(values: Values, key: bytes, field: Any) -> Any:
    fields = _hash(values, key)
    return ASK if fields is ASK else int(fields is not None and encoded(field) in fields)


def _hset(values: Values, key: bytes, *pairs: Any) -> Any:
    fields = _hash(values, key)
    if not fields or fields is ASK or len(pairs) % 2:
        return ASK
    before = len(fields)
    fields.update(zip(map(encoded, pairs[::2]), map(encoded, pairs[1::2]), strict=True))
    return len(fields) - before


def _hsetnx(values: Values, key: bytes, field: Any, value: Any) -> Any:
    fields = _hash(values, key)
    if not fields or fields is ASK:
        return ASK
    name = encoded(field)
    if name in fields:
        return 0
    fields[name] = encoded(value)
    return 1


def _hincrby(values: Values, key: bytes, field: Any, by: Any) -> Any:
    fields = _hash(values, key)
    if not fields or fields is ASK:
        return ASK
    name = encoded(field)
    before = fields.get(name, b"0")
    if not before.isdigit():
        return ASK
    after = int(before) + int(by)
    fields[name] = str(after).encode()
    return after


def _get(values: Values, key: bytes) -> Any:
    item = values.get(key)
    if item is None:
        return False
    return item.value if type(item.value) is bytes and item.expireat is None else ASK


def _zscore(values: Values, key: bytes, member: Any) -> Any:
    item = values.get(key)
    if item is None:
        return False
    return ASK if type(item.value) is not ZSet or encoded(member) in item.value else False


def _xrevrange(values: Values, key: bytes, *bounds: Any) -> Any:
    """The newest entry, which every reply of the election names."""
    item = values.get(key)
    if item is None:
        return []
    stream = item.value
    if type(stream) is not XStream or bounds[:3] != (b"+", b"-", b"COUNT") or bounds[3] not in {1, b"1"}:
        return ASK
    return [stream.format_record(stream._ids[-1])] if stream._ids else []


def _hdel(values: Values, key: bytes, *names: Any) -> Any:
    fields = _hash(values, key)
    if fields is None:
        return 0
    if fields is ASK or len(fields) <= len(names):
        return ASK  # it may become empty, and is then removed
    return sum(fields.pop(encoded(name), None) is not None for name in names)


def _rpush(values: Values, key: bytes, *items: Any) -> Any:
    item = values.get(key)
    if item is None or type(item.value) is not list or item.expireat is not None:
        return ASK
    item.value.extend(map(encoded, items))
    return len(item.value)


def _zmscore(values: Values, key: bytes, *members: Any) -> Any:
    item = values.get(key)
    if item is None:
        return [False] * len(members)
    if type(item.value) is not ZSet:
        return ASK
    scores = [item.value.get(encoded(member)) for member in members]
    return [False if score is None else Float.encode(score, humanfriendly=False) for score in scores]


def _zadd(values: Values, key: bytes, *pairs: Any) -> Any:
    item = values.get(key)
    if item is None or type(item.value) is not ZSet or item.expireat is not None or len(pairs) != 2:
        return ASK
    score, member = pairs
    if type(score) is bytes and not score.isdigit():
        return ASK  # an option, or an unusual number
    before = len(item.value)
    item.value.add(encoded(member), float(score))
    return len(item.value) - before


def _if_absent(answer: int) -> Callable[..., Any]:
    def absent(values: Values, key: bytes, *_rest: Any) -> Any:
        return ASK if key in values else answer

    return absent


def _nothing_if_absent(values: Values, key: bytes, *_rest: Any) -> Any:
    return ASK if key in values else []


def _length(kind: type) -> Callable[..., Any]:
    def length(values: Values, key: bytes) -> Any:
        item = values.get(key)
        if item is None:
            return 0
        is_usual = type(item.value) is kind and item.expireat is None
        return len(item.value) if is_usual else ASK

    return length


def _time(_values: Values) -> list[bytes]:
    now_us = round(time_of() * 1_000_000)
    return [str(now_us // 1_000_000).encode(), str(now_us % 1_000_000).encode()]


QUICK: dict[bytes, Callable[..., Any]] = {
    b"EXISTS": lambda values, *keys: ASK if any(key in values for key in keys) else 0,
    b"GET": _get,
    b"HDEL": _hdel,
    b"HEXISTS": _hexists,
    b"HGET": _hget,
    b"HINCRBY": _hincrby,
    b"HLEN": _length(Hash),
    b"HMGET": _hmget,
    b"HSET": _hset,
    b"HSETNX": _hsetnx,
    b"LLEN": _length(list),
    b"LRANGE": _nothing_if_absent,
    b"RPUSH": _rpush,
    b"SCARD": _length(ExpiringMembersSet),
    b"SISMEMBER": _if_absent(0),
    b"SMEMBERS": _nothing_if_absent,
    b"SRANDMEMBER": _nothing_if_absent,
    b"TIME": _time,
    b"XREVRANGE": _xrevrange,
    b"XLEN": _length(XStream),
    b"ZCARD": _length(ZSet),
    b"ZADD": _zadd,
    b"ZCOUNT": _if_absent(0),
    b"ZMSCORE": _zmscore,
    b"ZRANGE": _nothing_if_absent,
    b"ZRANGEBYSCORE": _nothing_if_absent,
    b"ZSCORE": _zscore,
}
