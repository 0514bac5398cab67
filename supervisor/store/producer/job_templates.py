"""Jobs as a producer enqueues them: those of this program, and those that the workers' replicas published."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from supervisor.core.errors import ArgumentsError, UnknownJobError, shown
from supervisor.core.jobs import registry as jobs
from supervisor.core.jobs.job_spec import JobCard
from supervisor.core.jobs.options import checked_priority
from supervisor.core.jobs.registry import JobSpec
from supervisor.core.json_values import read_json
from supervisor.core.model import PRIORITIES, Template
from supervisor.core.names import check_name
from supervisor.store.producer.options import Args, JobRef
from supervisor.store.wire.envelope import ArgumentsTemplate, content_of

CARDS_AGE_NS_MAX = 60 * 1_000_000_000  # how long a published job is believed before it is read again
TEMPLATES_MAX = 1000


class JobTemplate:
    """Packs runs of one job, for one queue and priority."""

    def __init__(self, source: object, base: Template, admit: Callable[[Args], Args]) -> None:
        """Build it.

        Args:
            source: the object it was made from; a caller that keeps it compares.
            base: the part common to every run; its arguments are defaults.
            admit: returns arguments as they travel; raises ArgumentsError for those that the job does not take.
        """
        self.source = source
        self.template = base
        self._admit = admit
        self._defaults = base.args
        runs = ArgumentsTemplate(base)
        self._pack = runs.pack
        self.tail = runs.tail
        """See ``ArgumentsTemplate.tail``."""

    def content(self, args: Args) -> str:
        """Return the digest of a run that was packed, by which its id is known to be of the same run again."""
        return content_of(self.template.job, {**self._defaults, **self._admit(args)})

    def pack(self, run_id: str, args: Args, tail: bytes) -> bytes:
        """Return a run as ``ArgumentsTemplate.pack`` does, with the arguments that the job takes and has by default.

        Raises:
            ArgumentsError: the job does not take them, or they are no JSON.
            PayloadTooLargeError: the envelope is over 64 KiB.
        """
        if type(args) is not dict and not isinstance(args, Mapping):
            raise ArgumentsError(
                f"job {self.template.job}: its arguments are a mapping of names to values, got {type(args).__name__}"
            )
        args = self._admit(args)
        return self._pack(run_id, {**self._defaults, **args} if self._defaults else args, tail)


class JobTemplates:
    """The jobs that a producer can enqueue: those of this program, and those that the workers' replicas published."""

    def __init__(self) -> None:
        self._cards: dict[str, JobCard] = {}
        self._cards_read_ns = 0
        self._known: dict[tuple[JobRef, str | None, str | None], JobTemplate] = {}

    def needs_cards(self, job: JobRef, now_ns: int) -> bool:
        """Return whether published jobs must be read before ``of`` is asked for ``job``."""
        if not isinstance(job, str) or job in jobs.registry:
            return False
        return job not in self._cards or now_ns - self._cards_read_ns > CARDS_AGE_NS_MAX

    def remember(self, published: dict[str, bytes], now_ns: int) -> None:
        """Take the published jobs, by name, read just now."""
        self._cards = {}
        for name, card in published.items():
            # One that a newer version wrote in a new form is unknown here, and hides no other.
            with suppress(msgspec.DecodeError):
                self._cards[name] = read_json(card, JobCard)
        self._cards_read_ns = now_ns

    def of(self, job: JobRef, *, queue: str | None, priority: str | None) -> JobTemplate:
        """Return the template of ``job``.

        Raises:
            UnknownJobError: neither this program nor any replica knows the job.
            OptionError: there is no such priority, or there can be no such queue.
        """
        source = self._find(job)
        with suppress(TypeError):  # a queue or a priority that is no text
            known = self._known.get((job, queue, priority))
            if known is not None and known.source is source:
                return known
        given: dict[str, Any] = {}
        if queue is not None:
            given["queue"] = check_name("queue", queue)
        if priority is not None:
            given["priority"] = PRIORITIES[checked_priority(priority)]
        base = source.base if isinstance(source, JobSpec) else source.template
        template = JobTemplate(source, msgspec.structs.replace(base, **given), source.admit)
        if len(self._known) >= TEMPLATES_MAX:
            self._known.clear()
        self._known[job, queue, priority] = template
        return template

    def _find(self, job: JobRef) -> JobSpec | JobCard:
        if not isinstance(job, str):
            return jobs.registry.find(job)
        if job in jobs.registry:
            return jobs.registry.get(job)
        if job in self._cards:
            return self._cards[job]
        known = ", ".join(sorted({*jobs.registry.names(), *self._cards})) or "none"
        raise UnknownJobError(f"no job is called {shown(job)}, here or on any replica of the cluster; known: {known}")
