"""A table of rows as one test hides no row that fails."""

from __future__ import annotations

import pytest

from tests.kit.tables import table


def test_each_row_that_fails_is_told_by_its_values() -> None:
    """By an assertion, in a table of tables, and because nothing was refused."""

    @table("a", [1, 2])
    @table(("b", "c"), [(1, 2), pytest.param(3, 3)])
    def less(a: int, b: int, c: int) -> None:
        assert a + b < 2 + c

    with pytest.raises(BaseExceptionGroup, match="1 of 2 rows fail") as caught:
        less()
    (inner,) = caught.value.exceptions
    assert inner.__notes__ == ["row: a=2"]
    assert [each.__notes__ for each in inner.exceptions] == [["row: b=3, c=3"]]

    with pytest.raises(BaseExceptionGroup) as refused:
        table("a", [1, 2])(_refuses)()
    assert [each.__notes__ for each in refused.value.exceptions] == [["row: a=1"], ["row: a=2"]]


def _refuses(a: int) -> None:
    with pytest.raises(ValueError, match="no"):
        assert a
