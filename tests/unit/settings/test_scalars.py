"""Plain scalars: what every YAML parser agrees on, and what is refused because they do not."""

from __future__ import annotations

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.settings.scalars import Trap, resolve
from tests.kit.tables import table


@table(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None), ("NULL", None), ("true", True), ("FALSE", False), ("0", 0), ("-3", -3),
        ("+5", 5), ("0x1F", 31), ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("1.5e+3", 1500.0), ("y", "y"), ("n", "n"),
        ("5m", "5m"), ("2026-01-01", "2026-01-01"), ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00Z"), ("1.2.3", "1.2.3"),
        ("-", "-"), (".", "."), ("0s", "0s"), ("127.0.0.1", "127.0.0.1"), ("a:b", "a:b"), ("_1", "_1"), ("nUll", "nUll"),
    ],
)  # fmt: skip
def test_what_all_parsers_agree_on_has_its_value(text: str, value: object) -> None:
    """Dates stay texts: no setting is a date."""
    assert resolve(text) == value
    assert type(resolve(text)) is type(value)


@table(
    ("text", "remedy"),
    [
        ("on", "write true or false, or quote it"), ("Off", "write true or false"), ("yes", "write true"), ("NO", "write true"),
        ("12:30:00", "quote it"), ("8:30", "quote it"), ("12:30:00.5", "quote it"), ("190:20:30", "quote it"),
        ("012", "drop the zero"), ("-07", "drop the zero"), ("08", "drop the zero"), ("0o17", "decimal"), ("0b11", "decimal"),
        ("1_000", "underscores"), ("1_0.5", "underscores"), ("1e3", "without exponent"), ("12e5", "without exponent"),
        ("1.5e3", "without exponent"), ("-.5", "a 0 before the point"), (".inf", "quote it"), ("-.INF", "quote it"), (".nan", "quote it"), ("0x1_F", "decimal"),
        ("9999999999999999999", "quote it"), ("1" * 5000, "quote it"), ("-0x1F", "decimal"), ("1.0e+999", "quote it"),
    ],
)  # fmt: skip
def test_what_parsers_disagree_on_is_refused_with_the_remedy(text: str, remedy: str) -> None:
    """`on`, `012`, `12:30:00` and a commit id such as 12e5 have all cost somebody a night."""
    found = resolve(text)
    assert isinstance(found, Trap)
    assert remedy in found.remedy


@example("-.0")
@example("+.5e-3")
@given(st.from_regex(r"[-+0-9.:_eExobYyNnOoFfTtrusal~]{1,8}", fullmatch=True))
def test_no_value_differs_from_what_pyyaml_reads(text: str) -> None:
    """PyYAML implements 1.1: where it reads anything else than we do, it must be a trap or a date."""
    try:
        theirs = yaml.safe_load(
            f"[{text}]" if text not in {"-", ":"} and not text.startswith(("- ", ": ")) else "['x']"
        )
    except (yaml.YAMLError, ValueError):
        return
    ours = resolve(text)
    if theirs in (["x"], []) or isinstance(ours, Trap) or not isinstance(theirs[0], str | int | float | bool | None):
        return
    assert theirs == [ours]
