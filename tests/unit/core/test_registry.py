"""The jobs this program knows, and what their signatures say. Annotations here are strings (PEP 563)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pytest

import tenure
from supervisor.core.errors import ArgumentsError, UnknownJobError
from supervisor.core.jobs.job_spec import JobCard
from supervisor.core.jobs.registry import DuplicateJobError, JobSpec, Registry, job, registry
from supervisor.core.model import Kind
from supervisor.core.retry import Retry
from supervisor.roles.worker.attempt.context import Context
from supervisor.store.queues.jobs import published_job

if TYPE_CHECKING:
    from decimal import Decimal


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test registers into an empty registry; ``job`` uses the one of its module."""
    monkeypatch.setattr("supervisor.core.jobs.registry.registry", Registry())


def known(name: str) -> JobSpec:
    """Return a job of this test's registry."""
    from supervisor.core.jobs import registry as module  # noqa: PLC0415 - the fixture replaced its attribute

    return module.registry.get(name)


def test_the_kind_follows_from_the_function() -> None:
    """Nobody has to say twice that a function is a coroutine."""

    @job("a")
    async def first() -> None: ...

    @job("b")
    def second() -> None: ...

    assert known("a").kind is Kind.ASYNC
    assert known("b").kind is Kind.SYNC


def test_the_function_is_returned_unchanged() -> None:
    """A job is tested by calling it."""

    @job("double")
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8


def test_a_context_is_recognised_in_a_string_annotation() -> None:
    """Modules with ``from __future__ import annotations`` are most modules."""

    @job("direct")
    def direct(context: Context, number: int) -> None: ...

    @job("qualified")
    def qualified(number: int, run: tenure.Context) -> None: ...

    @job("without")
    def without(context: int) -> None: ...

    assert known("direct").context_parameter == "context"
    assert known("qualified").context_parameter == "run"
    assert known("without").context_parameter is None
    assert known("direct").check({"number": "3"}) == {"number": 3}


def test_a_context_imported_for_type_checking_only_is_recognised_by_its_name() -> None:
    """Linters move such imports under TYPE_CHECKING; the job must not break."""
    scope: dict[str, Any] = {"job": job}
    source = "@job('hidden')\ndef hidden(ctx: 'lib.Context', number: 'int') -> 'Missing': ...\n"
    exec(source, scope)

    assert known("hidden").context_parameter == "ctx"


def test_a_function_inside_a_function_may_call_itself_and_use_types_around_it() -> None:
    """Its own name is not set yet while it is decorated."""

    class Point(msgspec.Struct):
        x: int

    @job("nested")
    def nested(point: Point, depth: int = 0) -> int:
        return Point(x=point.x).x if depth else nested(point, depth=1)

    assert nested(**known("nested").check({"point": {"x": 3}})) == 3


def test_a_type_that_does_not_exist_at_run_time_is_refused_with_the_remedy() -> None:
    """Else the first run would find out."""
    with pytest.raises(ValueError, match=r"type 'Decimal' of parameter 'price' .* outside TYPE_CHECKING"):

        @job("unresolved")
        def unresolved(price: Decimal) -> None: ...


def test_a_return_type_that_does_not_exist_at_run_time_is_no_problem() -> None:
    """Only arguments are converted."""

    @job("returns")
    def returns(number: int) -> Decimal: ...  # type: ignore[empty-body]

    assert known("returns").check({"number": 1}) == {"number": 1}


def test_two_contexts_are_refused() -> None:
    """One of the two would be an argument that no caller can give."""
    with pytest.raises(ValueError, match="'a' and 'b' both take the Context"):

        @job("twice")
        def twice(a: Context, b: Context) -> None: ...


def test_arguments_are_converted_to_their_types() -> None:
    """They come as JSON, from YAML and from a command line."""

    @job("typed")
    def typed(at: datetime, mode: Literal["a", "b"], ids: list[int], note: str | None = None) -> None: ...

    found = known("typed").check({"at": "2024-05-01T10:00:00Z", "mode": "a", "ids": [1, "2"]})

    assert found["at"].year == 2024
    assert found["ids"] == [1, 2]
    assert "note" not in found


def test_defaults_are_left_to_the_function() -> None:
    """A default need not be JSON, nor of its own type."""
    marker = object()

    @job("defaults")
    def defaults(number: int = 5, thing: Any = marker, many: list[int] = [1, 2]) -> Any:  # noqa: B006
        return number, thing, many

    assert known("defaults").check({}) == {}
    assert defaults(**known("defaults").check({"number": 6})) == (6, marker, [1, 2])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, "missing required field `number`"),
        ({"number": "many"}, "Expected `int`"),
        ({"number": 1, "colour": "red"}, "takes no argument 'colour'"),
    ],
)
def test_arguments_that_do_not_fit_are_named(args: dict[str, Any], message: str) -> None:
    """The producer learns it, not the worker at three in the morning."""

    @job("strict")
    def strict(number: int) -> None: ...

    with pytest.raises(ArgumentsError, match=message):
        known("strict").check(args)


@pytest.mark.parametrize(
    "source",
    [
        "def bad(*args): ...",
        "def bad(**kwargs): ...",
        "def bad(a, /): ...",
        "def bad(a: complex): ...",
        "class bad: ...",
        "bad = len",
    ],
)
def test_functions_that_could_not_be_called_are_refused_at_import(source: str) -> None:
    """Positional-only and star parameters have no name; complex is no JSON."""
    scope: dict[str, Any] = {}
    exec(source, scope)

    with pytest.raises(ValueError, match="job bad"):
        job("bad")(scope["bad"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": "urgent"}, "high, normal, low"),
        ({"timeout": 0}, "timeout must be above 0"),
        ({"timeout": 10, "soft_timeout": 11}, "at most timeout"),
        ({"max_crashes": 0}, "max_crashes"),
        ({"result_ttl": -1}, "result_ttl"),
        ({"delivery": "exactly_once"}, "at_least_once or at_most_once"),
        ({"delivery": "at_most_once", "retry": Retry(attempts=2)}, "cannot be combined"),
        ({"name": "white space"}, "job name"),
    ],
)
def test_options_outside_their_range_are_refused(options: dict[str, Any], message: str) -> None:
    """At import, with the value seen."""
    with pytest.raises(ValueError, match=message):
        job(**options)(lambda: None)


def test_at_most_once_means_one_attempt() -> None:
    """A retry would do again what may have been done."""

    @job("once", delivery="at_most_once")
    def once() -> None: ...

    assert known("once").base.retry.attempts == 1
    assert known("once").template({}).at_most_once


def test_one_name_for_two_functions_is_refused_with_both_origins() -> None:
    """Which of them ran would depend on the order of imports."""

    @job("same")
    def first() -> None: ...

    with pytest.raises(DuplicateJobError, match=r"first.*second"):

        @job("same")
        def second() -> None: ...


def test_a_module_may_be_imported_again() -> None:
    """Reloading replaces the function by its newer self."""

    def register() -> Any:
        @job("again")
        def again() -> None: ...

        return again

    register()
    newest = register()

    assert known("again").function is newest


def test_an_unknown_name_says_where_jobs_come_from() -> None:
    """The usual cause is a module that nobody listed."""
    with pytest.raises(UnknownJobError, match="under jobs:"):
        Registry().get("nobody")


def test_a_function_finds_its_job() -> None:
    """Producers may pass the function instead of its name."""

    @job("found")
    def found() -> None: ...

    from supervisor.core.jobs import registry as module  # noqa: PLC0415 - the fixture replaced its attribute

    assert module.registry.find(found).name == "found"
    with pytest.raises(UnknownJobError, match="decorate it with @job"):
        module.registry.find(known)


def test_a_template_carries_the_job_and_takes_overrides() -> None:
    """What a schedule or a caller does not set stays as the job declares it."""

    @job("made", queue="mail", priority="high", timeout=30)
    def made(number: int) -> None: ...

    template = known("made").template({"number": 1}, queue="bulk", timeout_s=None)

    assert (template.queue, template.priority, template.timeout_s, template.args) == ("bulk", 0, 30.0, {"number": 1})


def test_a_published_card_routes_and_checks_names_without_the_function() -> None:
    """A producer that does not import the job must still not enqueue nonsense."""

    @job("carded", queue="mail", retry=Retry(attempts=7))
    async def carded(context: Context, number: int, note: str = "") -> None: ...

    from supervisor.core.jobs import registry as module  # noqa: PLC0415 - the fixture replaced its attribute

    card = msgspec.json.decode(module.registry.cards()["carded"], type=JobCard)

    template = published_job(card).template({"number": 1}, priority=2)
    assert (template.kind, template.queue, template.priority, template.retry.attempts) == (Kind.ASYNC, "mail", 2, 7)
    with pytest.raises(ArgumentsError, match="takes no argument 'context'"):
        published_job(card).template({"number": 1, "context": {}})
    with pytest.raises(ArgumentsError, match="needs 'number'"):
        published_job(card).template({})


def test_the_real_registry_is_the_one_that_job_fills() -> None:
    """The fixture above replaced it for this module only."""
    assert isinstance(registry, Registry)
