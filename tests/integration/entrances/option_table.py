"""Every option of a run, the places where it can be given, and the one precedence of these.

Each place gives a value of its own, so that the value of a run tells the place that counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from supervisor.core.model import Envelope, ScheduleDef, Template

PRECEDENCE = ("call", "schedule", "job", "picked", "own", "default", "built in")
"""``picked`` is the profile that the schedule picks, ``own`` the one that the job picks."""

BARE = "bare"
"""A profile that says nothing itself. A schedule that picks it goes by ``default``, whatever its job picks."""


class Seen(NamedTuple):
    """Result of an entrance: a run, or the definition of a schedule with the template of its runs."""

    template: Template
    envelope: Envelope | None = None
    definition: ScheduleDef | None = None


class Option(NamedTuple):
    """One option: the value of each place, the way it is written there, and where it is seen.

    ``job`` and ``profile`` are what is written there, ``schedule`` is the name of the field.
    """

    values: Mapping[str, Any]
    seen: Callable[[Seen], Any]
    job: str = ""
    profile: str = ""
    schedule: str = ""


def _start_deadline(seen: Seen) -> float | None:
    if seen.definition is None:
        return seen.template.start_deadline_s
    late_ms = seen.definition.start_deadline_ms
    return None if late_ms is None else late_ms / 1000


def _limits(seen: Seen) -> tuple[Any, ...]:
    of = seen.template
    limits = (of.unique, of.concurrency, of.concurrency_max, of.rate, of.rate_count, of.rate_per_ms)
    return (*limits, of.max_crashes, of.result_ttl_s, of.soft_timeout_s, of.at_most_once)


OPTIONS = {
    "priority": Option(
        {"call": 0, "schedule": 2, "job": 0, "picked": 2, "own": 0, "default": 2, "built in": 1},
        lambda seen: seen.template.priority,
        job="priority={word!r}", profile="priority: {word}", schedule="priority",
    ),
    "timeout": Option(
        {"schedule": 105.0, "job": 101.0, "picked": 104.0, "own": 102.0, "default": 103.0, "built in": 300.0},
        lambda seen: seen.template.timeout_s,
        job="timeout={value}", profile="timeout: {value}s", schedule="timeout",
    ),
    "retry": Option(
        {"schedule": 15, "job": 11, "picked": 14, "own": 12, "default": 13, "built in": 3},
        lambda seen: seen.template.retry.attempts,
        job="retry=Retry(attempts={value})", profile="retry: {{attempts: {value}}}", schedule="retries",
    ),
    "start_deadline": Option(
        {"schedule": 205.0, "job": 201.0, "picked": 204.0, "own": 202.0, "default": 203.0, "built in": None},
        _start_deadline,
        job="start_deadline={value}", profile="start_deadline: {value}s", schedule="start_deadline",
    ),
    "missed": Option(
        {"schedule": "all", "picked": "skip", "own": "earliest", "default": "all", "built in": "latest"},
        lambda seen: seen.definition and seen.definition.missed,
        profile="missed: {value}", schedule="missed",
    ),
    "overlap": Option(
        {"schedule": "allow", "picked": "buffer_one", "own": "buffer_all", "default": "allow", "built in": "skip"},
        lambda seen: seen.definition and seen.definition.overlap,
        profile="overlap: {value}", schedule="overlap",
    ),
    "queue": Option(
        {"call": "called", "schedule": "scheduled", "job": "declared", "built in": "default"},
        lambda seen: seen.template.queue,
        job="queue={value!r}", schedule="queue",
    ),
    "limits": Option(
        {
            "job": ("*", "{key}", 7, "", 5, 60_000, 9, 60.0, 40.0, True),
            "built in": ("", "", 0, "", 0, 0, 3, 86_400.0, None, False),
        },
        _limits,
        job=(
            "unique=True, concurrency=('{{key}}', 7), rate='5/m', max_crashes=9, result_ttl=60, soft_timeout=40, "
            "delivery='at_most_once'"
        ),
    ),
}  # fmt: skip
_WORDS = ("high", "normal", "low")


class Case(NamedTuple):
    """An option, and where it is given; ``picks``: the profile that the schedule picks."""

    option: str
    places: frozenset[str]
    picks: str = ""

    @property
    def job(self) -> str:
        """Name of the job."""
        return "-".join([self.option, *(place for place in ("job", "own") if place in self.places)])

    @property
    def name(self) -> str:
        """Name of the schedule, or id of the run."""
        more = [place for place in ("schedule", "call") if place in self.places]
        return "-".join([self.job, *more, *([self.picks] if self.picks else [])])

    def expected(self, *, has_default: bool) -> Any:
        """Return the value of the first place of the precedence that gives the option."""
        values = OPTIONS[self.option].values
        given = self.places | ({"default"} if has_default else set()) | {"built in"}
        given = given | {"picked"} if self.picks == "picked" else given
        given = given - {"own"} if self.picks else given
        return next(values[place] for place in PRECEDENCE if place in given and place in values)


def cases(*, of_schedules: bool) -> Iterator[Case]:
    """Yield every option with every set of places for it."""
    for option, spec in OPTIONS.items():
        if not of_schedules and option in {"missed", "overlap"}:
            continue
        last = "schedule" if of_schedules else "call"
        at = [[(), (place,)] if place in spec.values else [()] for place in ("job", "own", last)]
        picks = ("", "picked", BARE) if of_schedules and spec.profile else ("",)
        for *given, picked in product(*at, picks):
            yield Case(option, frozenset(place for each in given for place in each), str(picked))


def text(form: str, value: Any) -> str:
    """Return an option as ``@job`` or a profile says it."""
    return form.format(value=value, word=_WORDS[value] if value in range(3) else "")


def profiles(*, has_default: bool) -> str:
    """Return the profiles, one of each kind for each option, as a configuration has them."""
    lines = [f"  {BARE}: {{}}"]
    for place in ("own", "picked"):
        for name, option in OPTIONS.items():
            if place in option.values:
                lines.append(f"  {place}-{name}: {{{text(option.profile, option.values[place])}}}")
    if has_default:
        given = (text(each.profile, each.values["default"]) for each in OPTIONS.values() if each.profile)
        lines.append(f"  default: {{{', '.join(given)}}}")
    return "\n".join(["profiles:", *lines, ""])


def job_lines(case: Case) -> str:
    """Return the decorator and the function of the job of a case."""
    option = OPTIONS[case.option]
    given = [repr(case.job)]
    if "job" in case.places:
        given.append(text(option.job, option.values["job"]))
    if "own" in case.places:
        given.append(f"profile='own-{case.option}'")
    name = case.job.replace("-", "_")
    return f"@job({', '.join(given)})\ndef {name}(key: str = '', message: str = '', reason: str = '') -> None: ...\n"


def schedule_fields(case: Case) -> dict[str, Any]:
    """Return the schedule of a case, as a configuration has it."""
    fields: dict[str, Any] = {"job": case.job, "every": "10s"}
    if "schedule" in case.places:
        option = OPTIONS[case.option]
        value = option.values["schedule"]
        if case.option == "priority":
            value = _WORDS[value]
        elif case.option == "retry":
            value -= 1  # retries, where all others count attempts
        fields[option.schedule] = f"{value}s" if isinstance(value, float) else value
    if case.picks:
        fields["profile"] = BARE if case.picks == BARE else f"picked-{case.option}"
    return fields


def call_options(case: Case) -> dict[str, Any]:
    """Return the options that a call gives."""
    if "call" not in case.places:
        return {}
    value = OPTIONS[case.option].values["call"]
    return {case.option: _WORDS[value] if case.option == "priority" else value}
