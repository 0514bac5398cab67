"""What a person sees while thousands of worlds are computed."""

from __future__ import annotations

from io import StringIO

from tests.simulation.progress import Progress


def test_the_bar_says_how_far_it_is_and_when_it_will_be_over() -> None:
    """Ten seconds for a quarter: thirty more."""
    line = Progress(400, out=StringIO()).line(100, 1, 10.0)

    assert line.startswith("[#######.......................] 100/400 worlds, 1 broken, 10/s, 30s left")


def test_the_last_world_is_always_shown() -> None:
    """Where nobody watches, the end is what matters."""
    out = StringIO()
    progress = Progress(2, out=out)
    progress.show(1, 0)
    progress.show(2, 0)

    assert out.getvalue().count("worlds") == 1
    assert "2/2 worlds" in out.getvalue()
