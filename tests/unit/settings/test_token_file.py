"""The file of tokens: what it may say, and what an error says of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from supervisor.settings.token_file import LINES_MAX, Scope, TokenFileError, find_token, read_tokens

UNTIL = "deploys: until= is no day and no instant with an offset, like 2027-01-01"
DIGEST = hashlib.sha256(b"s3cret").hexdigest()


def written(directory: Path, text: str) -> str:
    """Return a file with ``text``."""
    path = directory / "tokens"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_line_is_a_name_a_digest_and_scopes(tmp_path: Path) -> None:
    """Comments and empty lines are for people; of several scopes the widest counts."""
    path = written(tmp_path, f"# who\n\ndeploys sha256:{DIGEST} read,operate # ci\ngrafana\tsha256:{'0' * 64}\tread\n")
    tokens = read_tokens(path)

    assert [(token.name, token.scope) for token in tokens] == [("deploys", Scope.OPERATE), ("grafana", Scope.READ)]
    found = find_token(tokens, "s3cret")
    assert found is not None
    assert found.name == "deploys"
    assert find_token(tokens, "S3CRET") is None
    assert find_token(tokens, "") is None
    assert find_token((), "s3cret") is None
    assert find_token(tokens, "\udcff") is None  # what a header with stray bytes becomes


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("deploys s3cret admin", "deploys: the second word is not sha256: and 64 hex digits"),
        ("s3cret", "has 1 words instead of three"),
        (f"deploys sha256:{DIGEST} s3cret", "deploys: a scope is not one of read, operate, admin"),
        (
            f"deploys sha256:{DIGEST} read, operate",
            "deploys: a scope is not one of read, operate, admin",
        ),
        (f"deploys sha256:{DIGEST} read until=s3cret", UNTIL),
        (f"deploys sha256:{DIGEST} read until=2027-01-01T10:00", UNTIL),
        (f"deploys sha256:{DIGEST} read jobs=a jobs=b", "deploys: jobs= stands there twice"),
        (
            f"deploys sha256:{DIGEST} read jobs=",
            "deploys: a word after the scopes is not until=, jobs= or queues= with a value",
        ),
        (f"a:s3cret sha256:{DIGEST} read", "begins with what is no name"),
        (f"deploys sha256:{DIGEST}0 read", "deploys: the second word is not sha256: and 64 hex digits"),
    ],
)
def test_an_error_names_the_line_and_repeats_no_token(tmp_path: Path, line: str, message: str) -> None:
    """People paste the token where its digest belongs."""
    with pytest.raises(TokenFileError) as caught:
        read_tokens(written(tmp_path, f"# first\n{line}\n"))

    (problem,) = caught.value.problems
    assert (problem.where, problem.message) == (f"{tmp_path}/tokens:2", message)
    assert "sha256sum" in problem.remedy
    assert "s3cret" not in str(caught.value)
    assert DIGEST not in str(caught.value)


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    """A name twice among them."""
    good = f"deploys sha256:{DIGEST} read"
    with pytest.raises(TokenFileError) as caught:
        read_tokens(written(tmp_path, f"{good}\nx\n{good}\n"))

    assert [problem.where.rpartition(":")[2] for problem in caught.value.problems] == ["2", "3"]


def test_a_file_that_is_none_is_told_apart(tmp_path: Path) -> None:
    """Absent, no text, too long."""
    with pytest.raises(TokenFileError, match="cannot be read: No such file"):
        read_tokens(str(tmp_path / "absent"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(TokenFileError, match="is no text in UTF-8"):
        read_tokens(str(tmp_path / "binary"))
    with pytest.raises(TokenFileError, match="has more than 1000 lines"):
        read_tokens(written(tmp_path, "\n" * (LINES_MAX + 1)))
