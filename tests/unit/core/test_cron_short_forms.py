"""Cron in fewer words: steps from a value on, names in full, ranges over the end of their field."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.cron_oracle import fires
from tests.kit.tables import table


@table(
    ("short", "long"),
    [
        ("0/15 * * * *", "*/15 * * * *"),
        ("5/10 * * * *", "5,15,25,35,45,55 * * * *"),
        ("0 9/4 * * *", "0 9,13,17,21 * * *"),
        ("0 0 10/7 * *", "0 0 10,17,24,31 * *"),
        ("0/30 0 0 * * *", "0,30 0 0 * * *"),
        ("0 0 * * Monday", "0 0 * * MON"),
        ("0 0 * * wednesday-Friday", "0 0 * * 3-5"),
        ("0 0 * * Tuesday#2", "0 0 * * 2#2"),
        ("0 0 * * fridayL", "0 0 * * 5L"),
        ("0 0 1 December,may *", "0 0 1 5,12 *"),
        ("0 0 * * FRI-MON", "0 0 * * 5,6,0,1"),
        ("0 0 * * 6-0", "0 0 * * 0,6"),
        ("0 0 * * 7-2", "0 0 * * 0,1,2"),
        ("0 0 * * 7/2", "0 0 * * 0,2,4,6"),
        ("0 22-6/2 * * *", "0 22,0,2,4,6 * * *"),
        ("50-10/10 * * * *", "50,0,10 * * * *"),
        ("0 0 28-2 * *", "0 0 28,29,30,31,1,2 * *"),
        ("0 0 1 NOV-FEB *", "0 0 1 11,12,1,2 *"),
    ],
)
def test_a_shorter_form_means_what_its_list_means(short: str, long: str) -> None:
    """Quartz, EventBridge, robfig/cron, fugit and systemd read these; each has one meaning."""
    assert fires(short, "2026-01-01T00:00Z", 60) == fires(long, "2026-01-01T00:00Z", 60)


@given(st.sampled_from([(0, 0, 59), (1, 0, 23), (2, 1, 31), (3, 1, 12), (4, 0, 6)]), st.data())
def test_a_range_over_the_end_of_its_field_is_the_cycle(field: tuple[int, int, int], data: st.DataObject) -> None:
    """In every field, with every step: the values from the first on, over the end, to the last."""
    index, low, high = field
    first = data.draw(st.integers(low + 1, high))
    last = data.draw(st.integers(low, first - 1))
    cycle = [*range(first, high + 1), *range(low, last + 1)]
    step = data.draw(st.integers(1, len(cycle)))
    words = ["0", "0", "*", "*", "*"]

    def compiled(text: str) -> list[str]:
        return fires(" ".join([*words[:index], text, *words[index + 1 :]]), "2026-01-01T00:00Z", 12)

    assert compiled(f"{first}-{last}/{step}") == compiled(",".join(map(str, cycle[::step])))


def test_a_hash_within_a_range_over_the_end_stays_in_it() -> None:
    """Nightly work is spread over the night, which has midnight in it."""
    hours = {fires("0 H(22-4) * * *", "2026-01-01T12:00Z", 1, seed=f"job-{n}")[0][11:13] for n in range(100)}
    stepped = fires("0 H(22-4)/3 * * *", "2026-01-01T12:00Z", 6, seed="a")

    assert hours == {"22", "23", "00", "01", "02", "03", "04"}
    assert {text[11:13] for text in stepped} <= {"22", "23", "00", "01", "02", "03", "04"}
    assert len({text[11:13] for text in stepped}) >= 2
