"""Places for connections: who is let in, who is pushed out, and when."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from supervisor.roles.web.connection_table import (
    BUSY_MAX,
    CONNECTIONS_MAX,
    LIFE_S,
    PER_ADDRESS_MAX,
    PROBE_S,
    REQUEST_S,
    SILENT_MAX,
    STREAM_LIFE_S,
    AddressTurns,
    ConnectionEntry,
    ConnectionTable,
    address_of,
)

S = 1_000_000_000
NOW = 1000 * S


def enter(places: ConnectionTable, address: str, now_ns: int = NOW) -> ConnectionEntry:
    """Take a place that there must be, and send a byte."""
    place = places.take(address, now_ns)
    has_room, _ = places.speak(place, now_ns)
    assert has_room
    return place


def connect(places: ConnectionTable, address: str) -> ConnectionEntry | None:
    """Take a place in silence, and return the one that has to be left for it, which is left."""
    places.take(address, NOW)
    surplus = places.surplus()
    if surplus is not None:
        places.leave(surplus)
    return surplus


def push(places: ConnectionTable, address: str, now_ns: int = NOW) -> tuple[bool, ConnectionEntry | None]:
    """Take a place and send a byte; return whether there is room, and the one that gave way."""
    return places.speak(places.take(address, now_ns), now_ns)


def test_a_newcomer_pushes_out_the_oldest_that_asked_nothing() -> None:
    """Whoever has asked is served; whoever has not is replaceable."""
    places = ConnectionTable()
    guests = [enter(places, f"10.0.0.{number}") for number in range(CONNECTIONS_MAX)]
    assert places.ask(guests[0], is_probe=False)

    assert push(places, "10.0.1.1") == (True, guests[1])
    assert push(places, "10.0.1.2") == (True, guests[2])
    assert len(places) == CONNECTIONS_MAX


@pytest.mark.parametrize("is_silent", [True, False])
def test_the_address_that_holds_the_most_gives_way(*, is_silent: bool) -> None:
    """A stranger who connects and connects does not push out others, whether it sends something or not."""
    places = ConnectionTable()

    def come(address: str) -> ConnectionEntry | None:
        return connect(places, address) if is_silent else push(places, address)[1]

    others = [come("10.0.0.1") for _ in range(3)]
    kept = list(places)
    assert others == [None] * 3
    left = [come("10.0.0.2") for _ in range(10 * CONNECTIONS_MAX)]
    assert come("10.0.0.3") is not None

    assert {place.address for place in left if place is not None} == {"10.0.0.2"}
    assert set(kept) <= set(places)


def test_who_has_sent_a_byte_does_not_give_way_to_silence() -> None:
    """A probe whose request is being read is not pushed out by a flood of connections of its own address."""
    places = ConnectionTable()
    probe = enter(places, "10.0.0.1")

    left = [connect(places, "10.0.0.1") for _ in range(10 * SILENT_MAX)]

    assert probe in list(places)
    assert sum(place is not None for place in left) == 9 * SILENT_MAX
    assert len(places) == 1 + SILENT_MAX


def test_an_address_gets_sixteen_requests_and_all_get_what_is_left_by_probes() -> None:
    """Beyond it a request is refused, and a probe is not."""
    places = ConnectionTable()
    admitted = [places.ask(enter(places, "10.0.0.1"), is_probe=False) for _ in range(PER_ADDRESS_MAX + 1)]
    assert admitted == [True] * PER_ADDRESS_MAX + [False]
    while sum(place.is_busy for place in places) < BUSY_MAX:
        assert places.ask(enter(places, f"10.0.1.{len(places)}"), is_probe=False)

    assert not places.ask(enter(places, "10.0.2.1"), is_probe=False)
    assert places.ask(enter(places, "10.0.0.1"), is_probe=True)


def test_who_holds_the_most_streams_gives_up_the_oldest_for_who_holds_less() -> None:
    """Until the newcomer would hold as many: two that come again and again must not push out each other."""
    places = ConnectionTable()
    held = [enter(places, f"10.0.0.{number % 4}") for number in range(BUSY_MAX)]
    assert [places.ask(each, is_probe=False) for each in held] == [True] * BUSY_MAX
    newcomers = [enter(places, "10.0.1.1") for _ in range(CONNECTIONS_MAX - BUSY_MAX)]

    assert places.crowding(newcomers[0]) is held[0]
    places.leave(held[0])
    assert places.ask(newcomers[0], is_probe=False)
    for number, each in enumerate(held):
        each.address = f"10.9.0.{number}"
    assert places.crowding(newcomers[1]) is None


def test_a_few_addresses_with_slow_requests_keep_no_other_out() -> None:
    """Four of them may hold all that is left by probes; a fifth gets what one of them holds too many of."""
    places = ConnectionTable()
    held = [enter(places, f"10.0.0.{number % 4}") for number in range(BUSY_MAX)]
    assert all(places.ask(each, is_probe=False) for each in held)
    newcomer = enter(places, "10.0.1.1")

    assert not places.ask(newcomer, is_probe=False)
    assert places.crowding(newcomer) is held[0]
    places.leave(held[0])
    assert places.ask(newcomer, is_probe=False)


def test_a_stream_gives_way_to_no_request() -> None:
    """A follower of events holds its place for an hour; its kind has limits of its own."""
    places = ConnectionTable()
    held = [enter(places, f"10.0.0.{number % 4}") for number in range(BUSY_MAX)]
    for each in held:
        assert places.ask(each, is_probe=False)
        each.is_stream = each is not held[-1]
    newcomer = enter(places, "10.0.1.1")

    assert places.crowding(newcomer) is None
    assert places.crowding(newcomer, spares_streams=False) is held[0]


def test_a_newcomer_is_refused_while_every_place_asks() -> None:
    """Probes that are being answered are not pushed out; those that are held open after it are."""
    places = ConnectionTable()
    guests = [enter(places, f"10.0.0.{number}") for number in range(CONNECTIONS_MAX)]
    for number, guest in enumerate(guests):
        places.ask(guest, is_probe=number >= BUSY_MAX)

    assert push(places, "10.0.1.1") == (False, None)
    assert push(places, "10.0.1.1", NOW + int((PROBE_S + 0.1) * S)) == (True, guests[BUSY_MAX])


def test_a_probe_that_was_answered_gives_way_at_once() -> None:
    """Its client may keep the connection from closing, and would hold the place of the next probe."""
    places = ConnectionTable()
    guests = [enter(places, "10.0.0.1") for _ in range(CONNECTIONS_MAX)]
    for guest in guests:
        places.ask(guest, is_probe=True)
    guests[7].is_answered = True

    assert push(places, "10.0.0.2") == (True, guests[7])


def test_each_part_of_a_connection_has_its_time() -> None:
    """Header within five seconds, everything within fifteen, a stream for an hour."""
    places = ConnectionTable()
    silent, asking, stream = (enter(places, f"10.0.0.{number}") for number in range(3))
    places.ask(asking, is_probe=False)
    places.ask(stream, is_probe=False)
    stream.is_stream = True

    def overdue(after_s: float) -> list[ConnectionEntry]:
        return places.overdue(NOW + int(after_s * S))

    assert overdue(REQUEST_S - 0.1) == []
    assert overdue(REQUEST_S + 0.1) == [silent]
    assert overdue(LIFE_S + 0.1) == [silent, asking]
    assert overdue(STREAM_LIFE_S + 0.1) == [silent, asking, stream]


def test_no_history_takes_more_places_than_there_are() -> None:
    """Any order of coming, asking and leaving keeps every limit, and leaves room for a probe."""
    chance = random.Random(20)
    places = ConnectionTable()
    for step in range(5000):
        now_ns = NOW + step * S // 100
        kind = chance.choice(("come", "come", "come", "speak", "speak", "ask", "ask", "leave", "sweep"))
        here = list(places)
        if kind == "come":
            places.take(f"10.0.0.{chance.randrange(6)}", now_ns)
            while (surplus := places.surplus()) is not None:
                places.leave(surplus)
        elif here and kind == "speak":
            waiting = [place for place in here if not place.has_spoken]
            if waiting:
                places.speak(chance.choice(waiting), now_ns)
        elif kind == "sweep":
            for place in places.overdue(now_ns):
                places.leave(place)
        elif here and kind == "ask":
            unasked = [place for place in here if place.has_spoken and not place.has_asked]
            if unasked:
                places.ask(chance.choice(unasked), is_probe=chance.random() < 0.1)
        elif here:
            places.leave(chance.choice(here))
        busy = [place for place in places if place.is_busy]
        assert sum(place.has_spoken for place in places) <= CONNECTIONS_MAX
        assert sum(not place.has_spoken for place in places) <= SILENT_MAX
        assert len(busy) <= BUSY_MAX
        assert max(Counter(place.address for place in busy).values(), default=0) <= PER_ADDRESS_MAX


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


def test_handshakes_begin_for_one_of_each_address_before_the_second_of_any() -> None:
    """Each costs a signature: behind all those of a flood a probe over TLS would wait for half a second."""
    turns: AddressTurns[int] = AddressTurns()
    flood = [ConnectionEntry("10.0.0.1", NOW) for _ in range(5)]
    probe = ConnectionEntry("10.0.0.2", NOW)
    for number, each in enumerate([*flood, probe]):
        turns.put(each, number)

    assert turns.drop(flood[1]) == 1
    assert turns.drop(flood[1]) is None
    taken = [turns.take() for _ in range(6)]
    assert taken == [(flood[0], 0), (probe, 5), (flood[2], 2), (flood[3], 3), (flood[4], 4), None]
    turns.put(probe, 7)
    assert turns.drop(probe) == 7
    assert (len(turns), turns.take()) == (0, None)
