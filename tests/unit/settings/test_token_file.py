"""The file of tokens: what it may say, and what an error says of it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.settings.web.tokens import (
    LINES_MAX,
    Scope,
    Token,
    TokenFileError,
    find_token,
    parse_tokens,
    read_tokens,
)
from tests.kit.tables import table

PATTERN = st.from_regex(r"[a-z0-9.*_:/-]{1,12}", fullmatch=True)

UNTIL = "deploys: until= is no day and no instant with an offset, like 2027-01-01"
LABELS = "deploys: labels= has no pairs like team=mail, separated by commas"
DIGEST = hashlib.sha256(b"s3cret").hexdigest()
SCOPES_WITH_RESULTS = (("both", "operate,results"), ("alone", "results"), ("admin", "admin"))


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


@table(
    ("line", "message"),
    [
        ("deploys s3cret admin", "deploys: the second word is not sha256: and 64 hex digits"),
        ("s3cret", "has 1 words instead of three"),
        (f"deploys sha256:{DIGEST} s3cret", "deploys: a scope is not one of read, operate, admin, results"),
        (
            f"deploys sha256:{DIGEST} read, operate",
            "deploys: a scope is not one of read, operate, admin, results",
        ),
        (f"deploys sha256:{DIGEST} read until=s3cret", UNTIL),
        (f"deploys sha256:{DIGEST} read until=2027-01-01T10:00", UNTIL),
        (f"deploys sha256:{DIGEST} read jobs=a jobs=b", "deploys: jobs= is there twice"),
        (
            f"deploys sha256:{DIGEST} read jobs=",
            "deploys: a word after the scopes is not until=, jobs=, queues= or labels= with a value",
        ),
        (f"deploys sha256:{DIGEST} read jobs=,", "deploys: jobs= has no names"),
        (f"deploys sha256:{DIGEST} read queues=,,", "deploys: queues= has no names"),
        (f"deploys sha256:{DIGEST} read labels=s3cret", LABELS),
        (f"deploys sha256:{DIGEST} read labels=team=", LABELS),
        (f"deploys sha256:{DIGEST} read labels=,", LABELS),
        (f"a:s3cret sha256:{DIGEST} read", "begins with an invalid name"),
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


@pytest.mark.parametrize("kind", ["pipe", "directory", "device"])
def test_what_is_no_regular_file_makes_no_tokens_and_keeps_nobody_waiting(kind: str, tmp_path: Path) -> None:
    """A pipe would hold up the web child, and with it every probe; a device may never end."""
    path = tmp_path / "tokens"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path = Path("/dev/zero")

    with pytest.raises(TokenFileError, match="cannot be read: no regular file"):
        read_tokens(str(path))


def test_a_link_to_a_file_is_followed_and_the_file_is_judged(tmp_path: Path) -> None:
    """Secrets of Kubernetes are links; what counts is who may write to the file."""
    link = tmp_path / "link"
    link.symlink_to(written(tmp_path, f"deploys sha256:{DIGEST} read\n"))
    assert [token.name for token in read_tokens(str(link))] == ["deploys"]

    (tmp_path / "tokens").chmod(0o666)
    with pytest.raises(TokenFileError, match="is not trusted"):
        read_tokens(str(link))


@given(
    st.builds(
        Token,
        name=st.from_regex(r"[a-z][a-z0-9._-]{0,20}", fullmatch=True),
        digest=st.binary(min_size=32, max_size=32),
        scope=st.sampled_from(Scope),
        until_ms=st.none() | st.integers(0, 4_000_000_000).map(lambda seconds: seconds * 1000),
        jobs=st.lists(PATTERN, max_size=3).map(tuple),
        queues=st.lists(PATTERN, max_size=3).map(tuple),
        labels=st.lists(st.tuples(PATTERN, PATTERN), max_size=3).map(tuple),
    )
)
def test_the_line_of_a_token_is_read_as_that_token(token: Token) -> None:
    """What writes a line and what reads it agree, limits included: one that got lost would let everybody in."""
    assert parse_tokens("tokens", f"{token.line}\n".encode()) == (token,)


def test_a_line_that_was_cut_off_makes_no_tokens() -> None:
    """A disk that is full, or a reader in the middle of a write, leaves a token without its limits."""
    whole = f"deploys sha256:{DIGEST} operate jobs=report.* queues=mail\n".encode()
    for end in range(1, len(whole)):
        with pytest.raises(TokenFileError):
            parse_tokens("tokens", whole[:end])
    assert [token.queues for token in parse_tokens("tokens", whole)] == [("mail",)]


def test_a_comment_begins_where_a_word_does() -> None:
    """A ``#`` inside of a limit would take the limits behind it away."""
    (token,) = parse_tokens("tokens", f"ci sha256:{DIGEST} read jobs=a#b queues=mail #labels=a=b c\n#\n".encode())
    assert (token.jobs, token.queues, token.labels) == (("a#b",), ("mail",), ())


def test_the_scope_of_results_is_added_to_another_and_included_in_none() -> None:
    """Who operates a cluster need not see what its jobs return."""
    both, alone, admin = parse_tokens(
        "f", "".join(f"{name} sha256:{DIGEST} {scopes}\n" for name, scopes in SCOPES_WITH_RESULTS).encode()
    )
    assert [each.shows_results for each in (both, alone, admin)] == [True, True, False]
    assert [each.scope for each in (both, alone, admin)] == [Scope.OPERATE, Scope.READ, Scope.ADMIN]
    assert parse_tokens("f", f"{both.line}\n".encode()) == (both,)
