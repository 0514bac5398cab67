"""Destinations: which addresses the HTTP jobs of a worker connect to."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.jobs.references import DestinationRule
from supervisor.settings.rules.cross_rules import violations
from supervisor.settings.sections.models import Settings
from tenure.jobs.destinations import DestinationRefusedError, connect, judged_socket
from tests.kit.tables import table

REFUSED = [
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.0.1",
    "169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.192", "192.0.2.1", "198.18.0.1", "203.0.113.9", "224.0.0.1",
    "239.255.255.250", "240.0.0.1", "255.255.255.255", "168.63.129.16",
    "::", "::1", "::7f00:1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "100::1", "2001:db8::1", "2001::1",
    "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1",
    "2002:7f00:1::", "2002:a9fe:a9fe::1", "::ffff:0:7f00:1",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::1"]


@table("address", REFUSED)
def test_what_is_not_a_public_address_is_refused(address: str) -> None:
    """Metadata services, databases and neighbours answer whoever reaches them."""
    assert not DestinationRule().allows_address(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    """Also in the forms of IPv6 that carry one."""
    assert DestinationRule().allows_address(address)


@given(st.ip_addresses(v=4))
def test_an_address_is_judged_alike_in_every_form(address: IPv4Address) -> None:
    """A form that is judged by its own number would be a way around."""
    number = int(address)
    forms = [
        IPv6Address((0xFFFF << 32) | number),
        IPv6Address((0x64FF9B << 96) | number),
        IPv6Address((0x2002 << 112) | (number << 80)),
    ]
    is_allowed = DestinationRule().allows_address(str(address))

    assert [DestinationRule().allows_address(str(form)) for form in forms] == [is_allowed] * 3
    allowing = DestinationRule([str(address)])
    assert all(allowing.allows_address(str(form)) for form in (address, *forms))


@given(st.ip_addresses())
def test_nothing_that_python_calls_other_than_global_is_allowed(address: IPv4Address | IPv6Address) -> None:
    """The rule is narrower than the library's. An address that carries one of IPv4 is judged by that; since 3.13 the library is not."""
    if DestinationRule().allows_address(str(address)):
        carried = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
        assert (carried or ip_address(str(address))).is_global


def test_networks_and_addresses_are_allowed_where_that_is_written() -> None:
    """And nothing beside them."""
    rule = DestinationRule(["10.1.0.0/16", "fd00::/8", "127.0.0.1"])

    assert all(map(rule.allows_address, ["10.1.255.1", "::ffff:10.1.0.1", "fd12::1", "127.0.0.1"]))
    assert not any(map(rule.allows_address, ["10.2.0.1", "127.0.0.2", "::1", "169.254.169.254"]))


def test_names_are_allowed_in_full_or_below_a_domain() -> None:
    """In any case, with or without the dot at the end; an address is no name."""
    rule = DestinationRule(["billing.internal", "*.svc.example", "10.0.0.0/8"])

    assert all(map(rule.allows_host, ["billing.internal", "BILLING.internal.", "a.b.svc.example"]))
    assert not any(
        map(rule.allows_host, ["x.billing.internal", "svc.example", "evilsvc.example", "10.0.0.0/8", "10.0.0.1", ""])
    )


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_no_socket_is_made_for_a_refused_address(address: str) -> None:
    """So nothing can be sent there, and the message does not say which address a name has."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with pytest.raises(DestinationRefusedError, match=r"job_destinations\.allow") as caught:
        judged_socket((family, socket.SOCK_STREAM, 0, "", (address, 80)))

    assert address not in str(caught.value)


def test_an_address_of_a_family_that_this_machine_lacks_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may have addresses of IPv6 where the kernel was started without it."""
    monkeypatch.setattr(DestinationRule, "current", DestinationRule(["127.0.0.0/8"]))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        where = listening.getsockname()
        lacking = (socket.AF_UNSPEC, socket.SOCK_STREAM, 0, "", ("1.1.1.1", 80))
        there = (socket.AF_INET, socket.SOCK_STREAM, 0, "", where)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: [lacking, there])
        with connect(("several.example", 80), 20) as connection:
            assert connection.getpeername() == where


@table(
    "entry", ["10.0.0.1/8", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "a b", "http://a", "a/8", "*", "*.", ".a", "a..b", "[::1]", "::1%eth0"]
)  # fmt: skip
def test_an_entry_that_can_allow_nothing_is_a_problem(entry: str) -> None:
    """With its place and what to write."""
    found = list(violations(Settings.model_validate({"job_destinations": {"allow": ["10.0.0.0/8", entry]}})))

    assert [each.paths for each in found] == [(("job_destinations", "allow", 1),)]
    assert "10.1.0.0/16" in found[0].remedy


def test_the_rule_of_a_process_is_the_strictest_without_one() -> None:
    """A program that runs jobs by itself has no configuration."""
    assert DestinationRule.current == DestinationRule()
