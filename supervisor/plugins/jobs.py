"""The jobs ``plugin.run`` and ``plugin.plan``: one task of a plugin, and a run for each of its tasks.

Secrets are never among the arguments: a run names a plugin, and the worker's configuration holds its secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec

from supervisor.clock import Clock
from supervisor.core.errors import TenureError
from supervisor.core.jobs.registry import job
from supervisor.core.units import SECOND_NS
from supervisor.plugins.contract import PluginError, PluginUnusableError
from supervisor.plugins.host import PluginHost, ReadyPlugin
from supervisor.plugins.redaction import Masker
from supervisor.plugins.registry import load_callable, registry
from supervisor.plugins.status import PluginStatus, Subject
from supervisor.roles.worker.attempt.context import Context
from supervisor.store.producer import connection
from supervisor.telemetry import metrics


class PluginPlan(TypedDict):
    """Result of a plan, as its run records it."""

    tasks: int


@job("plugin.run", timeout="1h")
def run(
    ctx: Context,
    host: PluginHost,
    *,
    plugin: str,
    options: dict[str, Any] | None = None,
    task: dict[str, Any] | None = None,
    method: str = "run",
) -> Summary:
    """Do one task of a plugin, and count its results.

    Args:
        ctx: the run's context.
        host: the plugins of this process.
        plugin: which, by its name.
        options: over the configured ones, key by key.
        task: the task; one of those that its ``tasks`` gives.
        method: ``run``, or another one that the plugin names.

    Raises:
        PluginError: the call failed.
        PluginUnusableError: the plugin cannot be used; its schedules are suspended.
    """
    with _called(ctx, host, plugin, options or {}, method) as ready:
        results = Results(
            clock=ctx.clock,
            most=ready.registered.settings.results_max,
            tell=ctx.progress,
            sink=_sink(ready, ctx),
            clean=ready.mask,
        )
        params = {"options": ready.options, "secrets": ready.secrets, "task": task or {}}
        with closing(ready.instance.call(method, params, killed_ns=ctx.deadline_ns)) as found:
            for result in found:
                results.take(result)
        summary = results.summary()
        metrics.PLUGIN_RESULTS.labels(plugin, "success").inc(summary["succeeded"])
        metrics.PLUGIN_RESULTS.labels(plugin, "failure").inc(summary["failed"])
        ctx.progress(results.counts())
    return summary


@job("plugin.plan", timeout="1h")
def plan(
    ctx: Context, host: PluginHost, *, plugin: str, options: dict[str, Any] | None = None, method: str = "run"
) -> PluginPlan:
    """Ask a plugin for its tasks, and spawn a run of ``plugin.run`` for each; all of them, or none.

    Args:
        ctx: the run's context.
        host: the plugins of this process.
        plugin: which, by its name.
        options: over the configured ones, key by key.
        method: the method that the runs call.

    Raises:
        PluginError: the call failed.
        PluginUnusableError: the plugin cannot be used; its schedules are suspended.
        SpawnError: there are more tasks than a run may have children.
    """
    count = 0
    with _called(ctx, host, plugin, options or {}, method) as ready:
        params = {"options": ready.options, "secrets": ready.secrets}
        queue = ready.registered.settings.queue
        with closing(ready.instance.call("tasks", params, killed_ns=ctx.deadline_ns)) as found:
            for task in found:
                _check_task(plugin, task, ready.mask)
                args: dict[str, Any] = {"plugin": plugin, "task": dict(task)}
                args |= {"options": options} if options else {}
                args |= {"method": method} if method != "run" else {}
                ctx.spawn("plugin.run", args, key=count, queue=queue)
                count += 1
    return PluginPlan(tasks=count)


@contextmanager
def _called(ctx: Context, host: PluginHost, name: str, options: dict[str, Any], method: str) -> Iterator[ReadyPlugin]:
    """Make a plugin ready, and report the end of its call to the cluster."""
    registered = registry.get(name)
    subject = Subject(registered, {**registered.settings.options, **options})
    standing = _standing(ctx)
    known = standing.known(subject) if standing else None
    version = known.version if known is not None else ""
    ready = None
    try:
        ready = host.ready(name, options)
        version = ready.instance.version
        if standing and ready.is_fresh:
            standing.verified(subject, version=version, metadata=ready.metadata, known=known)
        _check_method(name, method, ready.instance.methods)
        yield ready
    except (_CallerError, PluginSinkError):
        raise
    except (Exception, Context.SoftTimeout) as error:
        fault = _fault(error, name, is_ready=ready is not None)
        if fault is not None:
            outcome = "unusable" if isinstance(fault, PluginUnusableError) else "failed"
            metrics.PLUGIN_CALLS.labels(name, outcome).inc()
        if standing and fault is not None:
            standing.failed(subject, fault, version=version, schedule=ctx.schedule)
        raise
    else:
        metrics.PLUGIN_CALLS.labels(name, "ok").inc()
        if standing:
            standing.worked(subject, version=version, metadata=ready.metadata, known=known)
    finally:
        if ready is not None:
            host.discard(ready)


class _CallerError(PluginError):
    """The run asks for something the plugin does not have: no fault of the plugin."""


class PluginSinkError(TenureError):
    """The function that takes the results of a plugin failed."""


def _check_method(name: str, method: str, methods: tuple[str, ...]) -> None:
    if method not in methods:
        raise _CallerError(f"plugin {name} has no method {method!r}; it has: {', '.join(methods)}")


def _check_task(name: str, task: Any, mask: Masker) -> None:
    """Return if ``task`` can travel through Redis as the argument of a run."""
    if not isinstance(task, Mapping):
        raise PluginUnusableError(f"plugin {name}: tasks must give mappings, got {type(task).__name__}")
    text = msgspec.json.encode(task, enc_hook=str).decode()
    if mask.finds_in(text):
        raise PluginUnusableError(
            f"plugin {name}: a task holds a secret, and would lie in Redis with it; let run take it from its settings"
        )


def _fault(error: BaseException, name: str, *, is_ready: bool) -> Exception | None:
    """Return an error's verdict on the plugin; None when a person, or a newer run, asked for the end."""
    if isinstance(error, Exception):
        return error
    if "soft timeout" not in str(error):
        return None
    if is_ready:
        return PluginError(f"plugin {name} was still at work at the soft timeout of its run")
    return PluginUnusableError(f"plugin {name} had not passed init and verify at the soft timeout", phase="init")


def _sink(ready: ReadyPlugin, ctx: Context) -> Sink | None:
    reference = ready.registered.settings.sink
    if reference is None:
        return None
    function: Any = load_callable(reference, f"plugins.{ready.registered.name}.sink")

    def hand_over(batch: list[Any]) -> None:
        try:
            function(batch, ctx)
        except Exception as error:
            raise PluginSinkError(f"sink {reference} failed: {type(error).__name__}: {error}") from error

    return hand_over


def _standing(ctx: Context) -> PluginStatus | None:
    """Return the connection for reports to the cluster; None in a test of the job, which has no Redis."""
    return PluginStatus(connection.current(), ctx.clock) if ctx.producer is not None else None


BATCH_MAX = 100
EVERY_NS = SECOND_NS
CLOCK_EVERY = 64  # the clock is asked once in so many results
MESSAGES_MAX = 10
MESSAGE_CHARS_MAX = 200

Sink = Callable[[list[Any]], object]


class Summary(TypedDict):
    """Result of a plugin run, as the run records it."""

    results: int
    succeeded: int
    failed: int
    messages: list[str]  # of the first results that failed


@dataclass(eq=False, kw_only=True)
class Results:
    """The results of one run.

    Guarantees
        At most ``BATCH_MAX`` results are held. The next result is asked for when the sink has taken the batch, so a
        plugin that is faster than its sink waits.

    Args:
        clock: of this machine.
        most: how many there may be.
        tell: takes the counts, about once a second.
        sink: takes batches; None: they are only counted.
        clean: takes secrets out of the messages that are kept.
    """

    clock: Clock
    most: int
    tell: Callable[[dict[str, int]], None]
    sink: Sink | None
    clean: Callable[[str], str] = str

    def __post_init__(self) -> None:
        self._batch: list[Any] = []
        self._told_ns = self.clock.elapsed_ns()
        self._messages: list[str] = []
        self.count = 0
        self.failed = 0

    def take(self, result: Any) -> None:
        """Count one result, and hand it on when its batch is full or old.

        Raises:
            PluginUnusableError: there are too many.
        """
        self.count += 1
        if self.count > self.most:
            raise PluginUnusableError(f"gave more than {self.most} results (results_max)", phase="run")
        if isinstance(result, Mapping) and result.get("state", "SUCCESS") not in {"SUCCESS", None}:
            self._note_failure(result)
        if self.sink is not None:
            self._batch.append(result)
            if len(self._batch) >= BATCH_MAX:
                self.flush()
        if self.count % CLOCK_EVERY == 0:
            self._look()

    def flush(self) -> None:
        """Hand over the held results."""
        if self._batch and self.sink is not None:
            batch, self._batch = self._batch, []
            self.sink(batch)

    def summary(self) -> Summary:
        """Return the summary, once all is handed over."""
        self.flush()
        return Summary(
            results=self.count, succeeded=self.count - self.failed, failed=self.failed, messages=self._messages
        )

    def counts(self) -> dict[str, int]:
        """Return how far it is."""
        return {"results": self.count, "failed": self.failed}

    def _note_failure(self, result: Mapping[str, Any]) -> None:
        self.failed += 1
        if len(self._messages) < MESSAGES_MAX:
            message = self.clean(str(result.get("message", result.get("state"))))
            self._messages.append(message[:MESSAGE_CHARS_MAX])

    def _look(self) -> None:
        now_ns = self.clock.elapsed_ns()
        if now_ns - self._told_ns >= EVERY_NS:
            self._told_ns = now_ns
            self.tell(self.counts())
