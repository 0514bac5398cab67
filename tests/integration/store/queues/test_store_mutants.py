"""Broken variants of the queues' scripts, each of which a named fast test must catch. If it does not, it proves nothing.

``make sim-mutants`` breaks what elects and fires, then this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from supervisor.core.errors import StoreRefusedError
from supervisor.core.model import Release, Template
from supervisor.store.keys import KIND_LETTER
from supervisor.store.wire import envelope
from supervisor.store.wire.envelope import ArgumentsTemplate
from tests.integration.store.limits import test_store_limits as limits
from tests.integration.store.limits import test_store_slot_turns as slot_turns
from tests.integration.store.limits import test_store_slots as slots
from tests.integration.store.limits import test_store_two_limits as two_limits
from tests.integration.store.queues import test_store_cancel_script as cancelling
from tests.integration.store.queues import test_store_release_script as releases
from tests.integration.store.queues import test_store_turn_script as turns
from tests.kit.builders import StoreCalls
from tests.kit.servers import Server
from tests.simulation.mutants import Mutation, lua, python
from tests.unit.store import test_one_wire_form as wire

_TAIL = ArgumentsTemplate.tail


class Break(NamedTuple):
    """One protection that is removed, and the test that must see it."""

    mutation: Mutation
    seen_by: Callable[[StoreCalls], object]


def _head(template: Template, above: int = 0) -> bytes:
    return f"{KIND_LETTER[template.kind]}{template.priority}".encode()


def _tail_at_once(self: ArgumentsTemplate, wall_ms: int, _delay_ms: int, traceparent: str = "") -> bytes:
    return _TAIL(self, wall_ms, 0, traceparent)


def _without_world(test: Callable[[], object]) -> Callable[[StoreCalls], object]:
    return lambda _world: test()


BREAKS = {
    # One wire form.
    "runs carry no limits": Break(
        python(envelope, "_head", _head), limits.test_as_many_as_may_run_and_the_next_when_one_ends
    ),
    "runs of schedules carry no limits": Break(
        python(envelope, "_head", _head),
        _without_world(wire.test_definitions_that_differ_in_their_limits_share_no_bytes),
    ),
    "runs of producers have a form of their own": Break(
        python(ArgumentsTemplate, "tail", _tail_at_once),
        _without_world(wire.test_a_run_of_a_producer_has_the_bytes_of_its_packed_envelope),
    ),
    # An execution is its queue, its id and its fence.
    "an acknowledgement of any attempt counts": Break(
        lua("lib/settle.lua", "if tokens[n] ~= token or", "if not tokens[n] or"),
        turns.test_an_acknowledgement_of_another_attempt_is_stale,
    ),
    "an acknowledgement of an earlier execution counts": Break(
        lua(
            "lib/settle.lua",
            "if tokens[n] ~= token or",
            "if not tokens[n] or string.match(tokens[n], '^.*|') ~= string.match(token, '^.*|') or",
        ),
        turns.test_an_acknowledgement_of_an_earlier_execution_of_the_same_attempt_is_stale,
    ),
    "an acknowledgement of anybody counts": Break(
        lua(
            "lib/settle.lua",
            "token = t.session .. '|' .. attempt",
            "token = (tokens[n] or ''):match('^[^|]*') .. '|' .. attempt",
        ),
        turns.test_two_sessions_never_hold_one_run,
    ),
    "a cancel hits whatever has the id": Break(
        lua("queue_unwanted.lua", "is_over = redis.call('HGET', keys.run(queue), id) ~= token", "is_over = false"),
        cancelling.test_a_request_does_not_hit_a_later_attempt,
    ),
    "a dead session's runs are taken from others": Break(
        lua("release_runs.lua", "if string.sub(token, 1, #session + 1) == session .. '|' and", "if token ~= '' and"),
        releases.test_a_release_after_somebody_else_took_the_run_does_nothing,
    ),
    # Every death is charged, and no run for its neighbour.
    "a crash is not charged": Break(
        lua("release_runs.lua", "(how == 'crashed' and 1 or 0)", "0"),
        releases.test_crashes_are_charged_delayed_and_end_dead,
    ),
    "the first process is charged to its neighbours, too": Break(
        lua("release_runs.lua", "(how == 'crashed' and 1 or 0)", "(how ~= 'unstarted' and 1 or 0)"),
        releases.test_a_suspect_runs_alone_and_only_for_a_worker_that_is_idle,
    ),
    "an envelope sets how often it may crash": Break(
        lua(
            "release_runs.lua",
            "math.min(CRASHES_MAX, tonumber(template['max_crashes']) or 3)",
            "template['max_crashes']",
        ),
        lambda world: releases.test_no_envelope_lets_a_run_take_processes_down_for_ever(world, b"9007199254740992"),
    ),
    "what must not run twice runs again": Break(
        lua("release_runs.lua", "template['at_most_once'] == true", "false"),
        lambda world: releases.test_a_run_that_must_not_run_twice_is_dead_unless_it_never_began(
            world, Release.INTERRUPTED, "dead"
        ),
    ),
    # Limits.
    "a slot is not given back": Break(
        lua("lib/limits.lua", "redis.pcall('SREM', keys.limit_slots(of.concurrency), me)", ""),
        limits.test_as_many_as_may_run_and_the_next_when_one_ends,
    ),
    "who comes passes those that wait for a slot": Break(
        lua("lib/slots.lua", "if is_new and newest and", "if false and"),
        lambda world: slots.test_those_from_before_a_deploy_that_raised_the_limit_start_first(world, 2),
    ),
    "those that wait for a slot go by their own number": Break(
        lua("lib/slots.lua", "t.newest[wait] = max_of(queue, ids[n]) or 0", "t.newest[wait] = 0"),
        slots.test_all_slots_of_a_raised_limit_are_used_while_one_run_of_before_goes_on,
    ),
    "queues have the slots of a key out of turn": Break(
        lua(
            "lib/slots.lua",
            "if held + (t.ahead[place] or 0) < max then return true end",
            "if true then return true end",
        ),
        lambda _world: slot_turns.test_of_any_queues_with_any_workers_each_has_its_turn(0),
    ),
    "a busy queue has a slot kept without a rest": Break(
        lua("lib/slots.lua", "return kept_ms, REST * kept_ms", "return kept_ms, 0 * kept_ms"),
        lambda _world: slot_turns.check_a_busy_queue(1100),
    ),
    "a rate lets everything start": Break(
        lua("lib/rate_line.lua", "if tat + (ahead + 1) * step - per_us <= t.now_us then", "if true then"),
        limits.test_as_many_start_as_the_rate_allows_and_the_rest_come_one_after_another,
    ),
    "a run that goes to and fro between its slot and its rate has no age": Break(
        lua("lib/fetch.lua", "local came_us = came_at(att[n])", "local came_us"),
        lambda _world: two_limits.check_a_rush(2, 0),
    ),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("name", BREAKS)
def test_the_tests_of_queues_catch(name: str) -> None:
    """A variant with one protection removed must be found out by the test that is named for it."""
    mutation, seen_by = BREAKS[name]
    server = Server(None)
    try:
        with mutation():
            world = StoreCalls(server)
            with pytest.raises((AssertionError, StoreRefusedError)):
                seen_by(world)
            world.raw.close()
    finally:
        server.close()
