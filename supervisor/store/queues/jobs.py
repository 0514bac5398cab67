"""The jobs that replicas publish in Redis, as a registry: for programs that import none of them.

Guarantees
    A job that some replica of the last release runs is known, with its routing.

Does not guarantee
    More about arguments than their names: their types are checked where the function is.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from supervisor.core.jobs.job_spec import JobCard
from supervisor.core.jobs.registry import JobSpec, Registry
from supervisor.core.json_values import read_json
from supervisor.core.model import Kind, Template


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedJob(JobSpec):
    """A job whose function is elsewhere."""

    card_of: JobCard

    @property
    def origin(self) -> str:
        """Origin of the record."""
        return "redis"

    def check(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``args`` as they are; only their names can be checked here.

        Raises:
            ArgumentsError: a name is unknown or missing.
        """
        return dict(self.card_of.admit(args))

    def read(self, args: Mapping[str, Any]) -> msgspec.Struct:
        """Return an empty struct: jobs are read elsewhere. Names are checked.

        Raises:
            ArgumentsError: a name is unknown or missing.
        """
        self.card_of.admit(args)
        return msgspec.Struct()

    def admit(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``args``; their types are checked by the worker.

        Raises:
            ArgumentsError: a name is unknown or missing.
        """
        return self.card_of.admit(args)


def published_registry(published: Mapping[str, bytes]) -> Registry:
    """Return the jobs in ``published``: name to the JSON of a card. One of a newer format is left out."""
    registry = Registry()
    for card in published.values():
        with suppress(msgspec.DecodeError):
            registry.add(published_job(read_json(card, JobCard)))
    return registry


def _elsewhere() -> None:
    raise AssertionError("this job's function is not imported here")


def published_job(card: JobCard) -> PublishedJob:
    """Return the job that has this card."""
    return PublishedJob(
        base=card.template,
        function=_elsewhere,
        arguments=msgspec.Struct,
        signature=card.signature,
        given=frozenset(card.given),
        card_of=card,
    )


class _AnyCard(JobCard, frozen=True, kw_only=True):
    def admit(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``args``, whatever they are."""
        return args


class AnyJob(Registry):
    """Knows every name: for looking at schedules whose jobs do not matter."""

    def get(self, name: str) -> JobSpec:
        """Return a job called ``name`` that takes whatever arguments."""
        return published_job(_AnyCard(template=Template(job=name, kind=Kind.ASYNC)))

    def __contains__(self, name: object) -> bool:
        return True
