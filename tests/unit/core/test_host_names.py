"""Host names and addresses are judged alike in every spelling, by whoever asks."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.network import canonical_host, is_loopback
from supervisor.roles.web.access.auth import are_reads_open
from supervisor.settings.rules.cross_rules import is_readable_on_the_way
from supervisor.settings.rules.redis_exposure import exposures
from supervisor.settings.sections.models import RedisSettings
from supervisor.settings.sections.web import WebSettings

HERE = ("localhost", "127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1")
ELSEWHERE = ("example.org", "localhost.example.org", "10.0.0.1", "0.0.0.0", "::", "fe80::1", "::ffff:10.0.0.1")


@st.composite
def spellings(draw: st.DrawFn, host: str) -> str:
    """Return ``host`` in another case, with brackets, a zone and a trailing dot where its kind has them."""
    if ":" not in host:
        return draw(st.sampled_from((host, host.upper(), host.title()))) + draw(st.sampled_from(("", ".")))
    written = draw(st.sampled_from((host, host.upper(), ipaddress.ip_address(host).exploded)))
    zone = draw(st.sampled_from(("", "%eth0")))
    return draw(st.sampled_from((f"{written}{zone}", f"[{written}{zone}]")))


@given(data=st.data(), host=st.sampled_from(HERE + ELSEWHERE))
def test_a_host_is_judged_alike_in_every_spelling(data: st.DataObject, host: str) -> None:
    """A spelling that one rule knows and another does not is a hole in one of the two."""
    written = data.draw(spellings(host))

    assert canonical_host(written) == canonical_host(host)
    assert is_loopback(written) is (host in HERE)


@given(text=st.text(max_size=80))
def test_any_text_is_judged_and_has_one_spelling(text: str) -> None:
    """Settings and headers hold whatever somebody wrote: no text raises, and the one spelling has itself as its own."""
    once = canonical_host(text.rstrip("."))

    assert isinstance(is_loopback(text), bool)
    assert is_loopback(once) is is_loopback(text.rstrip("."))


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "example.org"])
def test_every_rule_asks_the_same_judge(host: str) -> None:
    """Reads that open themselves, tokens over http and passwords of Redis: each goes by the same set of hosts."""
    is_here = is_loopback(host)
    redis = RedisSettings.model_validate({"url": f"redis://u:p@{host}:6379/0"})

    assert are_reads_open(WebSettings(host=host)) is is_here
    assert is_readable_on_the_way(f"http://{host}/") is not is_here
    assert bool(list(exposures(redis))) is not is_here
