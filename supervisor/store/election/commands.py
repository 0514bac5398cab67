"""Commands of people to the process tree of one replica, and their answers.

Guarantees
    A command is taken once at least while its replica lives and Redis answers, and at most a minute after
    it was sent. Its answer can be read for ten minutes. Sending the same id again does nothing.

Does not guarantee
    That it is carried out once: an agent that dies before it answered leaves it to the next one. A
    command names one process of a slot, so that a second time finds it gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from supervisor.core.json_values import read_json
from supervisor.core.signing import Signer
from supervisor.store.scripts import Call, CallBuilder
from supervisor.store.wire.codec import cut, text, texts

WAITS_MS = 60_000
ANSWER_MS = 600_000


class Word(StrEnum):
    """Verbs of commands to agents."""

    REPORT = "report"  # what each worker process does
    QUIET = "quiet"
    RESUME = "resume"
    RECYCLE = "recycle"
    STACKS = "stacks"
    RELOAD = "reload"
    STOP = "stop"


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command."""

    word: Word
    slot: str = ""  # empty: all workers, or the whole tree
    generation: int = 0  # of the process that is meant; 0: whichever lives
    by: str = ""  # who asks, for the log
    at_ms: int = 0  # when it was signed, by the asker's clock; 0: it is not
    proof: str = ""  # see core/signing.py

    def __post_init__(self) -> None:
        """Take no more of its texts than a log line shows."""
        msgspec.structs.force_setattr(self, "slot", cut(self.slot))
        msgspec.structs.force_setattr(self, "by", cut(self.by))
        msgspec.structs.force_setattr(self, "proof", cut(self.proof))

    def signed(self, signer: Signer | None, replica: str, command_id: str, at_ms: int) -> Command:
        """Return it with the proof that who has the key sends it to ``replica``; without a signer as it is."""
        if signer is None:
            return self
        proof = signer.sign(at_ms, *self._words(replica, command_id))
        return msgspec.structs.replace(self, at_ms=at_ms, proof=proof)

    def fault(self, signer: Signer, replica: str, command_id: str, now_ms: int) -> str:
        """Return why an agent does not obey; empty when it does."""
        return signer.fault(self.proof, self.at_ms, now_ms, *self._words(replica, command_id))

    def _words(self, replica: str, command_id: str) -> tuple[str, ...]:
        return ("command", replica, command_id, self.word.value, self.slot, str(self.generation), self.by)


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """One worker row of a replica, at the moment of the answer."""

    slot: str
    pool: str
    state: str
    generation: int
    pid: int = 0
    busy: int = 0
    done: int = 0
    rss_kib: int = 0
    age_s: float = 0.0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a command."""

    is_done: bool
    reason: str = ""
    workers: tuple[WorkerReport, ...] = ()


class Commands(CallBuilder):
    """Builds the calls."""

    def send(self, replica: str, command_id: str, command: Command) -> Call[bool]:
        """Leave a command; False: too many wait, so the replica does not take them."""
        args = {"replica": replica, "id": command_id, "ttl_ms": WAITS_MS, "command": msgspec.json.encode(command)}
        return self._call("command_send", args, lambda reply: text(reply) == "SENT")

    def take(self, replica: str) -> Call[list[tuple[str, bytes]]]:
        """Read the commands that wait for a replica: id and JSON of each, oldest first."""
        args = {"replica": replica}
        return self._call(
            "command_take",
            args,
            lambda reply: [(text(each), body) for each, body in zip(reply[::2], reply[1::2], strict=True)],
        )

    def answer(self, replica: str, command_id: str, answer: Answer) -> Call[None]:
        """Answer a command."""
        args = {"replica": replica, "id": command_id, "ttl_ms": ANSWER_MS, "answer": msgspec.json.encode(answer)}
        return self._call("command_answer", args, lambda _: None)

    def read(self, command_ids: Sequence[str]) -> Call[list[Answer | None]]:
        """Read the answers of commands; None where there is none yet."""
        args = {"ids": list(command_ids)}
        return self._call(
            "command_read", args, lambda reply: [read_json(each, Answer) if each else None for each in texts(reply)]
        )
