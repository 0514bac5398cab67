"""The page for a person with a browser: what it shows, that everybody can read it, and that it runs nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product

import pytest

from supervisor.core.supervision.health import HealthCheck
from supervisor.roles.child import ChildContext
from supervisor.roles.web import dashboard
from supervisor.roles.web.cluster_snapshot import Overview
from supervisor.roles.web.status import status
from tests.kit.tables import table

VOID = {"meta", "link", "br"}
TEXT = ("text", "quiet", "link", "good", "warn", "bad")


class Outline(HTMLParser):
    """What a page consists of; fails on a tag that is closed by another."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture
def make_page(make_child: Callable[..., ChildContext], overview: Overview) -> Callable[..., str]:
    """Return a maker of the page."""

    def make(*, seen: Overview | None = overview, why: str = "", refreshes: bool = False, **settings: str) -> str:
        checks = [HealthCheck("agent", ""), HealthCheck("redis", why)]
        shown = status(make_child(**settings), seen)
        return dashboard.page(shown, checks, {"/livez": "whether it lives"}, refreshes=refreshes)

    return make


def test_it_says_who_leads_what_runs_what_waits_and_what_comes_next(make_page: Callable[..., str]) -> None:
    """The questions that bring a person to it, in their order."""
    outline = Outline(make_page(why="no answer for 4 s"))

    assert [word for word in outline.words if word in {"Health", "Processes", "Queues", "Next due", "Pages"}] == [
        "Health", "Processes", "Queues", "Next due", "Pages",
    ]  # fmt: skip
    for word in ("host.a1b2c3", "no answer for 4 s", "worker-io-0", "backoff", "3,456", "default", "token-cleanup"):
        assert word in outline.words, word
    assert "this replica leads, term 7" in " ".join(outline.words)
    assert {"href": "/livez"} in outline.named("a")


def test_an_outage_of_redis_is_shown_as_such(make_page: Callable[..., str]) -> None:
    """Not as empty queues."""
    page = make_page(seen=None)

    assert page.count("Redis does not answer") == 2
    assert "worker-io-0" in page


@table(("colours", "foreground", "ground"), [
    (colours, foreground, ground)
    for colours, foreground, ground in product((dashboard.LIGHT, dashboard.DARK), TEXT, ("ground", "panel"))
])  # fmt: skip
def test_every_text_has_the_contrast_that_weak_eyes_need(colours: dict[str, str], foreground: str, ground: str) -> None:
    """4.5 to 1, as WCAG AA asks, in light and in dark; lines and outlines 3 to 1."""
    assert contrast(colours[foreground], colours[ground]) >= 4.5
    assert contrast(colours["line"], colours[ground]) >= 3


def contrast(one: str, other: str) -> float:
    """Return the ratio of luminance as WCAG defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_it_can_be_read_aloud_and_walked_by_keyboard(make_page: Callable[..., str]) -> None:
    """A language, a title, one main part that can be skipped to, headed sections, tables whose cells have heads."""
    outline = Outline(make_page())
    identities = [attrs["id"] for _, attrs in outline.tags if "id" in attrs]

    assert outline.named("html") == [{"lang": "en"}]
    assert len(outline.named("title")) == len(outline.named("main")) == len(outline.named("h1")) == 1
    assert {"class": "skip", "href": "#main"} in outline.named("a")
    assert len(identities) == len(set(identities))
    assert all(attrs["aria-labelledby"] in identities for attrs in outline.named("section"))
    assert all(attrs["aria-label"] for attrs in outline.named("table"))
    assert all(attrs["scope"] in {"col", "row"} for attrs in outline.named("th"))
    assert ":focus-visible" in dashboard.STYLE
    assert not [attrs for _, attrs in outline.tags if "tabindex" in attrs]


def test_every_colour_has_one_name_and_no_state_is_a_colour_alone(make_page: Callable[..., str]) -> None:
    """Colours stand in the tokens and nowhere else, in both schemes; a coloured word is still a word."""
    assert dashboard.LIGHT.keys() == dashboard.DARK.keys()
    rules = dashboard.STYLE.rpartition("}}")[2]
    assert not re.search(r"#[0-9a-f]{3,6}\b|rgb|hsl", rules)
    assert set(re.findall(r"var\(--(\w+)\)", dashboard.STYLE)) - {"gap"} <= dashboard.LIGHT.keys()
    assert re.findall(r'<span class="\w+">([^<]*)</span>', make_page())
    assert "" not in re.findall(r'<span class="\w+">([^<]*)</span>', make_page())


def test_a_queue_that_nobody_serves_is_marked(make_page: Callable[..., str]) -> None:
    """Its runs wait for ever, and a pause is not the reason."""
    assert ">async, sync<" in make_page()
    assert '<span class="warn">no</span>' in make_page()


def test_nothing_that_somebody_named_becomes_markup(make_page: Callable[..., str], overview: Overview) -> None:
    """Queues, schedules and reasons are text, whatever they hold."""
    evil = '<script>alert("1")</script>'
    seen = replace(overview, queues=(replace(overview.queues[0], queue=evil),), next_due=((evil, 0),))
    page = make_page(seen=seen, why=evil)

    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 3
    assert not re.search(r"\son\w+=|javascript:", page)


def test_the_policy_lets_this_style_sheet_count_and_nothing_else(make_page: Callable[..., str]) -> None:
    """Named by its digest; no script, no image, no form, no frame."""
    (style,) = re.findall(r"<style>(.*?)</style>", make_page(), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()

    assert f"style-src 'sha256-{digest}'" in dashboard.POLICY
    assert dashboard.POLICY.startswith("default-src 'none'; frame-ancestors 'none'")
    assert "unsafe" not in dashboard.POLICY


def test_it_asks_again_only_when_told(make_page: Callable[..., str]) -> None:
    """A page that reloads under a reader's hands is no help; who wants it follows the link."""
    assert 'http-equiv="refresh"' not in make_page()
    assert f'content="{dashboard.REFRESH_S}"' in make_page(refreshes=True)


def test_a_thousand_queues_are_a_page_that_ends(make_page: Callable[..., str], overview: Overview) -> None:
    """The rest is counted."""
    many = tuple(replace(overview.queues[0], queue=f"q{number}") for number in range(1000))
    page = make_page(seen=replace(overview, queues=many))

    assert page.count('<th scope="row">q') == dashboard.ROWS_MAX
    assert "and 900 more" in page
