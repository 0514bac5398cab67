"""Scripts and their headers: a call that does not fit fails here, not in Redis."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lupa import lua51  # type: ignore[import-untyped]

from supervisor.core.model import Kind
from supervisor.core.names import check_name
from supervisor.store.client.preflight import SCRIPT_COMMANDS, acl_rules
from supervisor.store.keys import Keys
from supervisor.store.queues.sessions import check_session
from supervisor.store.scripts import _deferred, _read, _sections, _used, _with_theirs, _words, script, script_names
from tests.kit.tables import table

VARIABLES = re.compile(
    r"\blocal (?!function)([\w, ]+)|\bfunction ?\w*\(([\w, ]+)\)|\bfor ([\w, ]+?) (?:in|=)|\blocal function (\w+)"
)
CALL = re.compile(r"(?:redis\.p?call|\binform|\bread)\(\s*(?:att\[n\] and 'LPUSH' or )?'([A-Z]+)'")
LOCALS_SPARE_MIN = 5
ON_BOTH = re.compile(r"@on_both\(([^)]*)\)")
ROOT = Path(__file__).resolve().parents[3]


def test_every_header_is_understood() -> None:
    """KEYS and ARGV, the argument that takes any number of values, and what is included."""
    renew = script("lease_renew")
    assert renew.key_names == ("lease", "genesis", "events", "candidates", "fence")
    assert renew.arg_names == ("epoch", "nonce", "duration_ms", "hold", "alive", "replica", "info")
    turn = script("turn")
    assert (turn.arg_names[0], turn.arg_names[-1], turn.rest) == ("session", "ack_count", "items")
    assert "local function now_ms" in renew.source
    assert len({script(name).sha for name in script_names()}) == len(script_names())


def test_each_script_is_shown_to_work_on_fakeredis() -> None:
    """Users test on it. Two are called by the scheduler alone: the simulation runs them there."""
    sources = [path.read_text() for path in (ROOT / "tests" / "integration").rglob("test_*.py")]
    shown = [name for text in sources for named in ON_BOTH.findall(text) for name in re.findall(r'"(\w+)"', named)]
    assert sorted({*shown, "schedule_expectations", "schedule_rezone"}) == script_names()


def code_of(source: str) -> list[str]:
    """Return the lines of Lua without their comments."""
    return [re.sub(r"--.*", "", line) for line in source.splitlines()]


def variables(line: str) -> set[str]:
    """Return the names of the variables that a line declares."""
    lists = ["".join(found) for found in VARIABLES.findall(line)]
    return {name.strip() for names in lists for name in names.split(",")}


def texts(name: str) -> list[str]:
    """Return the texts of a script's libraries, and its own at the end, as they are written."""
    return [
        *(_read(f"lib/{library}") for library in _with_theirs(_sections(name, _read(name))["Includes"])),
        _read(name),
    ]


@table("name", script_names())
def test_each_script_uses_exactly_the_parameters_it_declares(name: str) -> None:
    """A header that is not true is worse than none."""
    item = script(name)
    body = "\n".join(line for text in texts(name) for line in code_of(text))
    assert re.findall(r"ARGV\[\d.*", body) == []
    assert set(re.findall(r"KEYS\[.*", body)) <= {"KEYS[1], '')"}  # lib/room: of any script
    declared = {*item.key_names, *item.arg_names, *(["ARGV"] if item.rest else [])}
    unused = {one for one in declared if not re.search(rf"\b{one}\b", body)}
    assert unused <= ({item.key_names[0]} if "KEYS[" in body else {"prefix"} if "keys." in body else set())
    assert "Returns" in item.source
    assert "redis.sha1hex" not in body
    assert not re.search(r"\b(cmsgpack|struct|bit)\.", body)


def test_each_parameter_is_described_and_each_key_has_its_type() -> None:
    """What a value is, in which unit, and what its absence means, is read where the script is read."""
    faults = []
    for name in script_names():
        text, item = _read(name), script(name)
        names = [*item.key_names, *item.arg_names, *([f"{item.rest}..."] if item.rest else [])]
        for one in names:
            found = re.search(rf"^-- (?:KEYS|ARGV|    )  {re.escape(one)} +(\S.*)$", text, re.MULTILINE)
            is_key = one in item.key_names
            if not found or (is_key and not re.search(r"\b(hash|string|stream|list|set|every key)\b", found[0])):
                faults.append(f"{name}: {one}")
    assert faults == []


@table("name", script_names())
def test_a_parameter_keeps_its_name_and_its_meaning(name: str) -> None:
    """Another variable of its name would be read in its place; only a form of its own value may take it over."""
    item = script(name)
    parameters = {*item.key_names, *item.arg_names, "FIRST"}
    *libraries, own = ([*code_of(text)] for text in texts(name))
    outermost = {one for lines in libraries for line in lines if line[:1] != " " for one in variables(line)}
    hidden = [f"{one} of a library" for one in outermost & parameters]
    for line in own:
        values = line.partition("=")[2] if line.startswith("local ") else ""
        hidden += [line for one in variables(line) & parameters if not re.search(rf"\b{one}\b", values)]
    assert hidden == []
    assert len(parameters) == len(item.key_names) + len(item.arg_names) + 1


def test_a_script_takes_what_an_older_client_sends() -> None:
    """In a rolling update a client may know fewer arguments: those are nil; the lines of the file stay as they are."""
    source = script("release_runs").source
    bound = "local ARGV = ARGV local prefix = KEYS[1] local session, history, dead_cap, detail = ARGV[1], ARGV[2], ARGV[3], "
    assert f"\n{bound}ARGV[4] local FIRST = 5 -- " in source
    assert source.count("\n") - source[: source.index(bound)].count("\n") == _read("release_runs").count("\n")
    assert script("lease_release").source.count("local lease, genesis, events = KEYS[1], KEYS[2], KEYS[3] ") == 2
    view = "local lease, genesis, events = KEYS[1] .. ARGV[2], KEYS[1] .. ARGV[3], KEYS[1] .. ARGV[4] "
    assert view in script("lease_view").source


FUNCTION = re.compile(r"^local function (\w+)", re.MULTILINE)


def test_a_script_has_those_functions_of_its_libraries_that_it_uses() -> None:
    """A server makes every function anew at each call; one that is missing would be found only when it is called."""
    sent = unused = 0
    for name in script_names():
        kept = script(name).source
        known = {function for text in texts(name) for function in FUNCTION.findall(text)}
        words = re.findall(r"\w+", re.sub(r"(?m)^ *(return \(function\(\) )?--.*", "", kept))
        assert known & set(words) <= set(FUNCTION.findall(kept)), name
        assert not isinstance(lua51.LuaRuntime().eval("loadstring")(kept), tuple), name
        sent += len(FUNCTION.findall(kept))
        unused += sum(words.count(function) == 1 for function in set(FUNCTION.findall(kept)))
    assert (sent > 1000, unused) == (True, 0)


def test_a_function_that_goes_takes_nothing_behind_it_along() -> None:
    """It ends in its line or at a bare `end`, with a comment behind that or not."""
    short, long = "local function short() return end", "local function long()\n  if x then return end -- x\nend"
    for unused in (short, f"{short} -- why", f"{short}  --", long, f"{long} -- why"):
        used = "local function used() return 1 end\n"
        assert _used(f"{unused}\n{used}", {"used"})[0] == used, unused


def test_the_acl_grants_what_the_scripts_call_and_nothing_else() -> None:
    """The list that people copy is held to the sources."""
    called = {command.lower() for name in script_names() for command in CALL.findall(script(name).source)}
    assert called == {name.partition("|")[0] for name in SCRIPT_COMMANDS.split()}
    rules = acl_rules("x")
    assert rules[:5] == ["resetkeys", "~{tenure:x}:*", "~tenure:clusters", "resetchannels", "-@all"]


def test_the_preflight_tries_every_command_of_the_acl() -> None:
    """What it does not try, it cannot miss."""
    tried = re.findall(r"\{ '([A-Z]+)'", script("preflight").source)
    assert {command.lower() for command in tried} == {name.partition("|")[0] for name in SCRIPT_COMMANDS.split()}


def test_a_call_with_wrong_names_fails_before_it_is_sent() -> None:
    """Swapped or forgotten arguments are found by the first test that builds the call."""
    item = script("lease_renew")
    keys = {name: name for name in item.key_names}
    args = {"epoch": 1, "nonce": "n", "duration_ms": 5, "hold": "", "alive": "", "replica": "r", "info": ""}
    call = item.call(keys=keys, args=args, parse=str)
    assert (call.keys, call.args) == (item.key_names, (1, "n", 5, "", "", "r", ""))
    assert item.argument(call, "epoch") == 1
    assert item.argument(call, "mode") is None
    for wrong in ({**args, "extra": 1}, {"epoch": 1, "nonce": "n"}):
        with pytest.raises(TypeError, match="lease_renew takes keys"):
            item.call(keys=keys, args=wrong, parse=str)
    with pytest.raises(TypeError, match="lease_renew"):
        item.call(keys={**keys, "more": "x"}, args=args, parse=str)


def test_every_key_of_a_cluster_has_its_hash_tag_and_no_other_clusters_prefix() -> None:
    """One slot of a Redis Cluster, one ACL pattern, and no meeting of two clusters."""
    keys = Keys("prod")
    names = [value for value in vars(keys).values() if isinstance(value, str) and value != "prod"]
    queue = keys.queue("mail")
    names += [
        value for name, value in vars(queue).items() if isinstance(value, str) and name not in {"queue", "_cluster"}
    ]
    names += [
        keys.session("s"),
        keys.result("r"),
        queue.ready(Kind.SYNC, 2),
        queue.bell(Kind.ASYNC),
        queue.suspect(Kind.ASYNC),
    ]
    assert all(name.startswith("{tenure:prod}:") for name in names)
    assert len(set(names)) == len(names)
    assert not any(name.startswith(Keys("pro").prefix) for name in names)


@table("name", ["", "{x}", "a:b", "a b", "-a", ".a", "x" * 65, "é", "a\n"])
def test_names_that_would_break_a_key_are_refused(name: str) -> None:
    """Cluster and queue names stand in keys."""
    with pytest.raises(ValueError, match="must be 1 to 64 characters"):
        check_name("queue", name)
    with pytest.raises(ValueError, match="cluster"):
        Keys(name)


@pytest.mark.parametrize("session", ["", "a|b", "a b", "a\n"])
def test_a_session_that_would_break_the_fence_is_a_mistake_of_the_program(session: str) -> None:
    """Sessions are made by the program, never by people."""
    with pytest.raises(AssertionError):
        check_session(session)


def test_every_script_has_local_variables_to_spare() -> None:
    """One too many, with its libraries, and Redis cannot compile it: found before the limit of Lua is met."""
    load, more = lua51.LuaRuntime().eval("loadstring"), "local _ " * LOCALS_SPARE_MIN
    full = [name for name in script_names() if isinstance(load(more + script(name).source), tuple)]
    assert full == [], f"fewer than {LOCALS_SPARE_MIN} of 200 local variables are free; a block can be a function"


def test_functions_of_a_deferred_library_are_made_by_their_first_use() -> None:
    """Most calls of a script do without them; how they share variables, call each other and are passed on stays."""
    library = (
        "local count = 0 -- of calls\nlocal function add(n)\n  count = count + n\n  return count\nend\n"
        "local function twice(n)\n  add(n)\n  return add(n)\nend\n"
    )
    use = "add(1) -- add\nlocal of = { add = 5 }\nreturn twice(of.add), pcall(add, 4)"
    front, [(text, _)] = _deferred("sums", library, [(use, _words(use))], ["sums"])
    own, last = "sums_lib().add(1) -- add\nlocal of = { add = 5 }\n", "pcall(sums_lib().add, 4)"
    assert text == f"{own}return sums_lib().twice(of.add), {last}"
    run = lua51.LuaRuntime().eval("function(text) return loadstring(text)() end")
    assert run(front + text) == (11, True, 15)
    assert run(f"{front}return count, sums_made") == (0, None)


def test_functions_are_deferred_by_their_names_with_those_that_nothing_else_uses() -> None:
    """A library may hold what every call needs beside what most do not."""
    library = (
        "local count = 1\nlocal function add(n) return n + count end\nlocal function seldom(n) return add(n) end\n"
        "local function rare(n) return seldom(n) + seldom(n) end\n"
    )
    use = "local sum = add(1)\nif sum > 2 then return rare(sum) end\nreturn sum"
    front, [(text, _)] = _deferred("sums", library, [(use, _words(use))], ["rare"])
    assert front.startswith("local count = 1\nlocal function add(n) return n + count end\nlocal sums_made\n")
    assert front.endswith("sums_made = { rare = rare }\nreturn sums_made\nend\n")
    assert text == "local sum = add(1)\nif sum > 2 then return sums_lib().rare(sum) end\nreturn sum"
    assert lua51.LuaRuntime().eval("function(text) return loadstring(text)() end")(front + text) == 2
    assert _deferred("sums", library, [(use, _words(use))], ["other"]) == (library, [(use, _words(use))])
    with pytest.raises(AssertionError, match="sums"):
        _deferred("sums", library, [(use, _words(use))], ["add"])


@pytest.mark.parametrize("name", script_names())
def test_what_is_deferred_is_a_library_or_a_function_of_one(name: str) -> None:
    """A name that is misspelled would defer nothing."""
    sections = _sections(name, _read(name))
    known = {*_with_theirs(sections["Includes"])}
    known |= {function for text in texts(name) for function in FUNCTION.findall(text)}
    assert set(sections["Deferred"]) <= known
