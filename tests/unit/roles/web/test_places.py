"""Places for connections: who is let in, who is pushed out, and when."""

from __future__ import annotations

import random

import pytest

from supervisor.roles.web.places import (
    BUSY_MAX,
    CONNECTIONS_MAX,
    LIFE_S,
    PER_ADDRESS_MAX,
    PROBE_S,
    REQUEST_S,
    STREAM_LIFE_S,
    Place,
    Places,
    address_of,
)

S = 1_000_000_000
NOW = 1000 * S


def enter(places: Places, address: str, now_ns: int = NOW) -> Place:
    """Take a place that there must be."""
    place, _ = places.take(address, now_ns)
    assert place is not None
    return place


def test_a_newcomer_pushes_out_the_oldest_that_said_nothing() -> None:
    """Whoever has asked is served; whoever has not is replaceable."""
    places = Places()
    guests = [enter(places, f"10.0.0.{number}") for number in range(CONNECTIONS_MAX)]
    assert places.ask(guests[0], is_probe=False)

    assert places.take("10.0.1.1", NOW)[1] is guests[1]
    assert places.take("10.0.1.2", NOW)[1] is guests[2]
    assert len(places) == CONNECTIONS_MAX


def test_the_seventeenth_silent_connection_of_an_address_costs_that_address_one() -> None:
    """A stranger who connects and connects does not push out others."""
    places = Places()
    other = enter(places, "10.0.0.1")
    own = [enter(places, "10.0.0.2") for _ in range(PER_ADDRESS_MAX)]

    assert places.take("10.0.0.2", NOW)[1] is own[0]
    assert other in list(places)
    assert len(places) == 1 + PER_ADDRESS_MAX


def test_an_address_gets_sixteen_requests_and_all_get_what_is_left_by_probes() -> None:
    """Beyond it a request is refused, and a probe is not."""
    places = Places()
    admitted = [places.ask(enter(places, "10.0.0.1"), is_probe=False) for _ in range(PER_ADDRESS_MAX + 1)]
    assert admitted == [True] * PER_ADDRESS_MAX + [False]
    while sum(place.is_busy for place in places) < BUSY_MAX:
        assert places.ask(enter(places, f"10.0.1.{len(places)}"), is_probe=False)

    assert not places.ask(enter(places, "10.0.2.1"), is_probe=False)
    assert places.ask(enter(places, "10.0.0.1"), is_probe=True)


def test_a_newcomer_is_refused_while_every_place_asks() -> None:
    """Probes that are being answered are not pushed out; those that are held open after it are."""
    places = Places()
    guests = [enter(places, f"10.0.0.{number}") for number in range(CONNECTIONS_MAX)]
    for number, guest in enumerate(guests):
        places.ask(guest, is_probe=number >= BUSY_MAX)

    assert places.take("10.0.1.1", NOW) == (None, None)
    assert places.take("10.0.1.1", NOW + int((PROBE_S + 0.1) * S))[1] is guests[BUSY_MAX]


def test_each_part_of_a_connection_has_its_time() -> None:
    """Header within five seconds, everything within fifteen, a stream for an hour."""
    places = Places()
    silent, asking, stream = (enter(places, f"10.0.0.{number}") for number in range(3))
    places.ask(asking, is_probe=False)
    places.ask(stream, is_probe=False)
    stream.is_stream = True

    def overdue(after_s: float) -> list[Place]:
        return places.overdue(NOW + int(after_s * S))

    assert overdue(REQUEST_S - 0.1) == []
    assert overdue(REQUEST_S + 0.1) == [silent]
    assert overdue(LIFE_S + 0.1) == [silent, asking]
    assert overdue(STREAM_LIFE_S + 0.1) == [silent, asking, stream]


def test_no_history_takes_more_places_than_there_are() -> None:
    """Any order of coming, asking and leaving keeps every limit, and leaves room for a probe."""
    chance = random.Random(20)
    places = Places()
    for step in range(20_000):
        now_ns = NOW + step * S // 100
        kind = chance.choice(("come", "come", "come", "ask", "ask", "leave", "sweep"))
        here = list(places)
        if kind == "come":
            places.take(f"10.0.0.{chance.randrange(6)}", now_ns)
        elif kind == "sweep":
            for place in places.overdue(now_ns):
                places.leave(place)
        elif here and kind == "ask":
            silent = [place for place in here if not place.has_asked]
            if silent:
                places.ask(chance.choice(silent), is_probe=chance.random() < 0.1)
        elif here:
            places.leave(chance.choice(here))
        busy = [place for place in places if place.is_busy]
        assert len(places) <= CONNECTIONS_MAX
        assert len(busy) <= BUSY_MAX
        assert all(sum(each.address == place.address for each in busy) <= PER_ADDRESS_MAX for place in busy)


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_an_address_is_what_one_client_has(host: str, counted: str) -> None:
    """Of IPv6 a whole network: else one machine would be as many as it likes."""
    assert address_of(host) == counted
