"""The quick way to run scripts gives the same answers as fakeredis' own, in whole worlds."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from fakeredis._helpers import SimpleError
from fakeredis._socket._resp import convert_to_resp2
from redis.exceptions import ResponseError

from supervisor.core.effects import Call
from supervisor.store.client.replies import fenced, translate
from supervisor.store.scripts import script
from supervisor.testing import commands, server
from supervisor.testing.scripting import QuickStore
from tests.simulation.scenario import run

FORM = commands._form

COMMANDS = """
    SET s v PX 1000|GET s|HGET s f|LLEN s|HLEN s|RPUSH s x|EXISTS s s none|PTTL s
    HSET h a 1 b 2|HSET h a|HGET h a|HGET h none|HMGET h a none b|HLEN h|HINCRBY h a 4|HINCRBY h a x|HGETALL h
    HSETNX h a 9|HSCAN h 0 COUNT 10|HDEL h a b|EXISTS h|HLEN h|LLEN none|ZCARD none|SCARD none|XLEN none|TYPE none
    RPUSH l a b c|LRANGE l 0 -1|LINDEX l 1|LINDEX l x|LPOP l|LTRIM l 1 -1|LREM l 0 c|EXISTS l|LPOP l|RPOPLPUSH none l
    SADD m a b|SISMEMBER m a|SMEMBERS m|SREM m a b|EXISTS m|SCARD s
    ZADD z 1.5 a 2 b|ZADD z x a|ZSCORE z a|ZSCORE z none|ZMSCORE z a none|ZCOUNT z -inf (2|ZREM z a b|EXISTS z
    ZRANGEBYSCORE z -inf +inf LIMIT 0 1|ZRANGE z 0 -1 WITHSCORES|ZCARD s
    XADD x 5-1 f v|XADD x 5-1 f v|XADD s 1-1 f v|XLEN x|XREVRANGE x + - COUNT 1|XRANGE x (5-0 +|XTRIM x MAXLEN 0|EXISTS x
    SETNX s w|SETNX t w|PEXPIRE t 5|PERSIST t|PEXPIRE t 1|TIME|DEL t s|DEL s|GET|GET a b|NONE a|SUBSCRIBE a|BLPOP l 1
"""


class PlainStore(QuickStore):
    """Sends every script through fakeredis' connection, parser and command table."""

    def run(self, call: Call[Any], *, timeout_s: float | None = None) -> Any:
        """Run one call the long way."""
        try:
            reply = self.raw.eval(script(call.script).source, len(call.keys), *call.keys, *call.args)
        except ResponseError as error:
            raise (fenced(error, call) or translate(error, where=self.where, operation=call.script)) from error
        return call.parse(reply)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 11])
def test_a_world_takes_the_same_course_on_fakeredis_own_interpreter(seed: int) -> None:
    """Every decision and every delay of a world follows from the replies: one that differs would show."""
    quick = run(seed)
    with patch.object(server, "QuickStore", PlainStore):
        plain = run(seed)

    assert [str(told) for told in quick.history] == [str(told) for told in plain.history]
    assert (quick.fired, quick.calls) == (plain.fired, plain.calls)


def test_each_command_does_what_it_does_in_fakeredis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies, refusals and what is stored: keys of each type, of another, absent, expired and emptied."""
    quick, plain = QuickStore(), QuickStore()
    socket, other = quick._socket, plain._socket
    differing, now_s = [], 1000.0
    with server.driven_time(lambda: now_s), quick.server.lock, plain.server.lock:
        for line in COMMANDS.strip().replace("\n", "|").split("|"):
            name, *args = line.encode().split()
            now_s += 0.25
            socket._db.time = other._db.time = now_s
            monkeypatch.setattr(commands, "_form", FORM)
            found = _outcome(socket, name, args)
            monkeypatch.setattr(commands, "_form", lambda *_: None)
            if found != (right := _outcome(other, name, args)) or _stored(quick) != _stored(plain):
                differing.append(f"{line}: {found}, in fakeredis {right}")

    assert not differing, "\n".join(differing)


def _outcome(socket: Any, name: bytes, args: list[bytes]) -> str:
    socket._script_resp = 2
    try:
        return repr(convert_to_resp2(commands.execute(socket, name, list(args))))
    except SimpleError as refused:
        return refused.value


def _stored(store: QuickStore) -> dict[bytes, tuple[str, float | None]]:
    return {
        key: (repr(vars(item.value) if hasattr(item.value, "__dict__") else item.value), item.expireat)
        for key, item in store.copy().items()
    }
