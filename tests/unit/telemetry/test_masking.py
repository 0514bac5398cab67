"""What must never be printed, and what must stay readable."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from supervisor.telemetry.masking import (
    DEPTH_MAX,
    ITEMS_MAX,
    MASK,
    NAME_CHARS_MAX,
    hiding,
    is_secret_name,
    mask,
    mask_entry,
    mask_text,
)
from tests.kit.tables import table

SECRET = "hunter2secret"


@table(
    "name",
    ["password", "PASSWORD", "db_password", "passwordHash", "access_token", "token", "Authorization", "client-secret",
     "apiKey", "API_KEY", "private_key", "secretKey", "Set-Cookie", "cookies", "passwords", "sentry_dsn", "credentials",
     "PGPASSWORD", "secretkey", "authtoken", "my_apikey"],
)  # fmt: skip
def test_a_value_under_a_secret_name_is_hidden(name: str) -> None:
    """Whatever its spelling: snake, camel, kebab or shouting."""
    assert is_secret_name(name)
    assert mask_entry(name, SECRET) == MASK
    assert mask_entry(name, 4711) == MASK


@table(
    "name",
    [
        "tokens_deleted",
        "job",
        "key",
        "monkey",
        "passed",
        "tokenizer",
        "author",
        "compass_heading",
        "secretary",
        "",
        "7",
    ],
)
def test_a_name_that_only_looks_secret_stays_readable(name: str) -> None:
    """A count of deleted tokens is what the operator wants to see."""
    assert not is_secret_name(name)


@table(
    ("text", "shown"),
    [
        (f"redis://:{SECRET}@host:6379/0", "redis://***@host:6379/0"),
        (f"rediss://user:{SECRET}@host/0 and redis://:{SECRET}@b", "rediss://***@host/0 and redis://***@b"),
        (f"postgresql+psycopg://u:{SECRET}@db/x", "postgresql+psycopg://***@db/x"),
        (f"redis://:pa/{SECRET}@host:1", "redis://***@host:1"),
        (f"://user:{SECRET}@host:1", "://***@host:1"),  # its scheme was cut off
        (f"redis://:a@{SECRET}@host:1", "redis://***@host:1"),
        (f"https://{SECRET}@github.com/x", "https://***@github.com/x"),
        ("http://host:8080/x?mail=a@b.c", "http://host:8080/x?mail=a@b.c"),
        ("mail to ops@example.com", "mail to ops@example.com"),
        (f"GET /x?token={SECRET}&page=2", "GET /x?token=***&page=2"),
        (f"https://h/?X-Amz-Signature={SECRET}&sig={SECRET}&n=1", "https://h/?X-Amz-Signature=***&sig=***&n=1"),
        ("its signature=(a, b) sig=3", "its signature=(a, b) sig=3"),
        (f"--db-password={SECRET} --verbose", "--db-password=*** --verbose"),
        (f"password = '{SECRET} with space' user=x", "password = *** user=x"),
        (f"password='it\\'s {SECRET}' pwd=\"a\\\"{SECRET}\" user=x", "password=*** pwd=*** user=x"),
        (f'"password=\\"{SECRET}\\" user=x"', '"password=*** user=x"'),
        (
            f"SECRET_KEY={SECRET} PRIVATE_KEY={SECRET} DB_PASS={SECRET} bypass=1",
            "SECRET_KEY=*** PRIVATE_KEY=*** DB_PASS=*** bypass=1",
        ),
        (f"passphrase={SECRET} credentials={SECRET} n=1", "passphrase=*** credentials=*** n=1"),
        (f"encryption_key={SECRET} SIGNING_KEY: {SECRET} n=1", "encryption_key=*** SIGNING_KEY: *** n=1"),
        (f"{{'signing_key': '{SECRET}', 'n': 1}}", "{'signing_key': ***, 'n': 1}"),
        (f"run --encryption-key {SECRET} --pass {SECRET} --passed 3", "run --encryption-key *** --pass *** --passed 3"),
        (f"Authorization: ApiKey 7{SECRET} x", "Authorization: *** x"),
        ("authorization: required header is missing", "authorization: *** header is missing"),
        (f"COOKIE: a={SECRET}\nHost: h", "COOKIE: ***\nHost: h"),
        (
            f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4\n\n{SECRET}\n-----END",
            "-----BEGIN RSA PRIVATE KEY-----***-----END",
        ),
        (f"Authorization: Bearer {SECRET}", "Authorization: ***"),
        (f"authorization='Basic {SECRET}'", "authorization='***'"),
        (f"sent Bearer {SECRET}", "sent Bearer ***"),
        (f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END", "-----BEGIN RSA PRIVATE KEY-----***-----END"),
        ("-----BEGIN PUBLIC KEY-----\nMIIB", "-----BEGIN PUBLIC KEY-----\nMIIB"),
        (f"bad {{'password': '{SECRET}', 'user': 'x'}}", "bad {'password': ***, 'user': 'x'}"),
        (f'{{"db": {{"api_key":"{SECRET}", "n": 1}}}}', '{"db": {"api_key":***, "n": 1}}'),
        (f'{{"access_token": "a\\"{SECRET}", "n": 1}}', '{"access_token": ***, "n": 1}'),
        (f'"{{\\"secret\\": \\"{SECRET}\\\\n\\", \\"n\\": 1}}"', '"{\\"secret\\": ***, \\"n\\": 1}"'),
        (f"{{'secret_key': b'{SECRET}', 'passphrase': None}}", "{'secret_key': ***, 'passphrase': None}"),
        (f"{{'token': {SECRET}}}", "{'token': ***}"),
        ("KeyError: 'password': {'tokens': 3}", "KeyError: 'password': {'tokens': 3}"),
        (f"mysql --password {SECRET} --host h", "mysql --password *** --host h"),
        (f"run --db-password '{SECRET} x' --force", "run --db-password *** --force"),
        (f"Command '['mysql', '--token', '{SECRET}', '-v']'", "Command '['mysql', '--token', ***, '-v']'"),
        ("give --password --force or --token-file /x", "give --password --force or --token-file /x"),
        (f"db:\n  password: {SECRET}\n  user: x", "db:\n  password: ***\n  user: x"),
        (f"db_password: '{SECRET} x', next", "db_password: ***, next"),
        (f"token: 7{SECRET}", "token: ***"),
        ("unexpected token: SELECT", "unexpected token: SELECT"),
        ("password: None, secret: null", "password: None, secret: null"),
        (f"Cookie: sid={SECRET}; theme=dark\nHost: h", "Cookie: ***\nHost: h"),
        (f"{{'Set-Cookie': 'sid={SECRET}; Path=/', 'n': 1}}", "{'Set-Cookie': '***', 'n': 1}"),
        (f"X-Api-Key: {SECRET}\nHost: h", "X-Api-Key: ***\nHost: h"),
        (f"{{'X-Auth-Token': '{SECRET}', 'n': 1}}", "{'X-Auth-Token': ***, 'n': 1}"),
        (f"PRIVATE-TOKEN and x-vault-token: {SECRET}", "PRIVATE-TOKEN and x-vault-token: ***"),
        ("x-request-id: 12 x-key-count: 3", "x-request-id: 12 x-key-count: 3"),
        ("the bearer of this", "the bearer of this"),
        ("tokens_deleted=12 epoch=7", "tokens_deleted=12 epoch=7"),
    ],
)
def test_credentials_inside_text_are_hidden(text: str, shown: str) -> None:
    """Error messages quote URLs and command lines; nothing else in them may change."""
    assert mask_text(text) == shown


def test_nested_values_are_masked_and_the_rest_is_kept() -> None:
    """Arguments of a request are often a mapping inside a list."""
    value = {"url": "http://u:p@h/", "items": [{"password": SECRET, "n": 1}], "none": None, "on": True}

    assert mask(value) == {"url": "http://***@h/", "items": [{"password": MASK, "n": 1}], "none": None, "on": True}


def test_an_absent_secret_is_shown_as_absent() -> None:
    """That no password is set is worth knowing and gives nothing away."""
    assert mask_entry("password", None) is None
    assert mask_entry("password", "") == ""


def test_an_object_shows_itself_as_text_so_that_no_encoder_walks_into_it() -> None:
    """A pydantic secret masks itself in text, but its fields would not."""

    class Colour(Enum):
        RED = "red"

    assert SECRET not in str(mask({"it": SecretStr(SECRET)}))
    assert mask([Colour.RED, Path("/etc"), b"x", ValueError("redis://:pw@h")]) == [
        "red", "/etc", "b'x'", "redis://***@h",
    ]  # fmt: skip


def test_deep_and_long_values_have_a_limit() -> None:
    """A value that contains itself must not hang the process that logs it."""
    loop: dict[str, object] = {}
    loop["again"] = loop

    shown = mask(loop)
    for _ in range(DEPTH_MAX):
        shown = shown["again"]
    assert shown == MASK
    assert len(mask(list(range(ITEMS_MAX * 3)))) == ITEMS_MAX
    many = {f"n{number}": number for number in range(ITEMS_MAX + 7)}
    assert mask(many) == {**dict(list(many.items())[:ITEMS_MAX]), "…": "+7"}
    assert mask(many, items=sys.maxsize) == many


@table("nested", [[[[1] * 100] * 100] * 100, (dict.fromkeys(range(100), (1,) * 100),) * 100, [[{}] * 1000] * 1000])
def test_values_within_values_have_one_limit_together(nested: object) -> None:
    """Six levels of a hundred items each would hold up an event loop for days, for one line of the log."""

    def count(value: object) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return sum(1 + count(each) for each in inner)

    assert 10 * ITEMS_MAX <= count(mask(nested)) <= 11 * ITEMS_MAX  # with the numbers of what is left out
    assert count(mask(nested, items=sys.maxsize)) > 100 * ITEMS_MAX


@table(
    ("name", "shown"),
    [(f"postgres://app:{SECRET}@db/prod", "postgres://***@db/prod"), (f"Authorization: Bearer {SECRET}", "Authorization: ***"),
     (f"--token {SECRET}", "--token ***"), (f"password={SECRET}", "password=***"), ("2026-11-27", "2026-11-27"), ("a.b/c-d", "a.b/c-d"),
     ("x" * 5_000, f"{'x' * NAME_CHARS_MAX}…(+4800)")],
)  # fmt: skip
def test_credentials_in_the_name_of_an_entry_are_hidden(name: str, shown: str) -> None:
    """Counts by DSN, URL or header have secrets in their names; all other names stay."""
    assert list(mask({"by": {name: 3}})["by"]) == [shown]


def test_entries_whose_names_differ_in_a_secret_all_stay() -> None:
    """The lag of a second account of a server is not that of the first."""
    assert list(mask({f"redis://u:pw{number}@h": number for number in range(3)}).values()) == [0, 1, 2]


def test_a_hidden_word_is_masked_as_a_name() -> None:
    """The secret of a run can look like any other word."""
    with hiding((SECRET,)):
        assert mask({SECRET: None, "plain": SECRET}) == {MASK: None, "plain": MASK}


@table("name", ["password_" + "x_" * 5_000, "x_" * 5_000 + "password", f"{'x_' * 100}password{'_x' * 100}", "x" * 201])
def test_the_value_under_a_long_name_is_hidden(name: str) -> None:
    """Nothing reads or keeps a name of megabytes; a secret word may stand anywhere in it."""
    assert is_secret_name(f"{name}_hash")
    assert list(mask({name + "_hash": SECRET}).values()) == [MASK]


@given(word=st.text(st.characters(categories=["L", "N"], include_characters="_./-"), max_size=NAME_CHARS_MAX))
def test_a_word_without_marks_is_shown_as_it_is(word: str) -> None:
    """Such words are not searched; a search would find nothing in them."""
    assert mask_text(word) == word == mask_text(word, hidden=("\0",))


@given(
    password=st.text(
        st.characters(codec="ascii", exclude_characters="\"'<>", categories=["L", "N", "P", "S"]), min_size=3
    ),
    host=st.from_regex(r"[a-z]{1,10}(:[0-9]{1,4})?", fullmatch=True),
)
def test_no_password_in_a_url_survives(password: str, host: str) -> None:
    """Whatever characters it holds: people forget to percent-encode."""
    shown = mask_text(f"cannot reach redis://user:{password}#@{host}/0")

    assert shown == f"cannot reach redis://***@{host}/0"


_PIECES = (
    "https://", "://", "@", "a.", "f0", "=", "/", ":", ":80", ";", " ", "\n", '"', "'", "<", "&", "password", "token",
    "auth", "authorization", "-----BEGIN PRIVATE KEY-----", "bearer ", "basic ", "api_key", "redis://u:p", "x", "é", "\\", "password': ", 'token\\": ',
    "--", "-", "--password ", "x-", "x-a-", "key:", "token:", "cookie: ", "5", "key=", "passphrase=\\'", "secret=\\\\", "authorization: a ",
)  # fmt: skip


_FORMS: dict[str, Callable[[str], object]] = {
    "text": lambda text: mask_text(text, len(text)),
    "name": lambda text: mask({text: 1}),
    "names": lambda text: mask({f"{number}{text[:300]}": text[:300] for number in range(5_000)}),
    "name that is asked": lambda text: is_secret_name(text * 100),
}


def _takes_s(action: Callable[[], object]) -> float:
    """Return the processor time of ``action``; a collection of all objects, or a busy host, may fall into one call."""
    began_s = time.process_time()
    action()
    return time.process_time() - began_s


@pytest.mark.parametrize("form", _FORMS)
@given(
    pieces=st.lists(st.sampled_from(_PIECES), min_size=1, max_size=5), end=st.sampled_from(["", "@", "=", '"', " x"])
)
def test_masking_takes_time_in_proportion_to_the_text(form: str, pieces: list[str], end: str) -> None:
    """32 KiB of any pattern take some 3 ms; were a rule quadratic, one would take seconds and stop a process.

    Of a mapping with very many entries and of a long name only what is shown is looked at.
    """
    piece = "".join(pieces)
    text = piece * (32 * 1024 // len(piece)) + end

    assert any(_takes_s(lambda: _FORMS[form](text)) < 0.25 for _ in range(3))  # many times what the worst pattern needs


def test_the_length_of_a_text_beyond_what_is_shown_costs_nothing() -> None:
    """A dump of 50 MB in an error is cut before it is looked at."""
    text = "https://host:80/ " * 3_000_000

    assert mask_text(text, 1000) == f"{text[:1000]}…(+{len(text) - 1000})"
    assert any(_takes_s(lambda: mask_text(text, 1000)) < 0.25 for _ in range(3))


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
@table(
    "form",
    ["redis://user:{}@host", "https://{}@host/x", "https://u:x/{}@host", "password={} x", "token='{} x'", 'pwd="{}" x',
     "Authorization: Bearer {} x", "authorization='{}'", "--password {} x", "password: {} x", "Cookie: a={}; b",
     "X-Api-Key: {} x", "token: 1{} x", "SECRET_KEY={} x", "password='it\\'s {}' x", 'password=\\"{}\\" x', "sent bearer {} x", "said {} x",
     "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----"],
)  # fmt: skip
@table("length", [8, 40, 5000])
def test_a_secret_that_the_cut_divides_is_not_shown_in_part(form: str, length: int, step: int) -> None:
    """At every offset, or each third, around the cut, and also where its end lies beyond all that is looked at."""
    secret = "".join(f"{number:04x}" for number in range(40960, 40960 + length // 4))
    text = form.format(secret)
    hidden = (secret,) if form.startswith("said") else ()
    begin = text.index(secret)
    with hiding(hidden):
        for shown_of_it in (*range(-12, min(length, 64) + 12, step), length - 1, length, length + 3):
            before = max(0, 100 - begin - shown_of_it)
            shown = mask_text("-" * (before - 1) + " " + text + " more" * 2000, 100)
            assert secret[:4] not in shown, shown_of_it


def test_nothing_but_the_secret_is_lost_at_the_cut() -> None:
    """A URL without a password stays readable although the cut divides it."""
    for url in ("https://host/", "https://host:8080/"):
        text = url + "path/" * 2000
        assert mask_text(text, 100) == f"{text[:100]}…(+{len(text) - 100})"


def test_a_value_whose_text_cannot_be_made_is_named() -> None:
    """An object of an ORM that is detached raises in its repr; to log it must not end the run."""

    class Detached:
        def __repr__(self) -> str:
            raise RuntimeError("no session")

        def __hash__(self) -> int:
            return 1

    named = "<Detached that cannot be shown: RuntimeError>"
    assert mask(Detached()) == named
    assert mask({"row": Detached(), "n": 1}) == {"row": named, "n": 1}
    assert mask([Detached(), 2]) == [named, 2]
    assert mask({Detached(): 1}) == "<dict that cannot be shown: RuntimeError>"
