"""A plugin that does one thing wrong, named by its first argument. Needs nothing but Python."""

import json
import os
import signal
import sys
import threading
from pathlib import Path

FAULT = sys.argv[1]
UNSHOWN = os.environ.get("UNSHOWN") or sys.argv[-1]


def say(**message: object) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def for_ever() -> None:
    """Do nothing until somebody ends this process."""
    threading.Event().wait()


def flood(number: int) -> None:
    """Write results until nobody reads them."""
    line = json.dumps({"id": number, "item": {"state": "SUCCESS", "padding": "x" * 200}}) + "\n"
    while True:
        sys.stdout.write(line)


def die(words: str) -> None:
    """End at once, with these last words."""
    sys.stderr.write(words)
    sys.stderr.flush()
    os._exit(3)


def run(number: int, params: dict) -> None:
    """Answer a run, or fail to."""
    say(id=number, item={"state": "SUCCESS", "n": 1})
    if FAULT == "flood":
        flood(number)
    if FAULT == "garbage":
        sys.stdout.write("Warning: something was deprecated\n")
    if FAULT == "binary":
        sys.stdout.buffer.write(b"\xff\xfe\x00\n")
        sys.stdout.buffer.flush()
    if FAULT == "endless line":
        while True:
            sys.stdout.write("x" * 65536)
    if FAULT == "leaves a child" and os.fork() == 0:
        os.setsid()
        os.read(0, 1)  # it holds the pipes of its parent until the other end lets go of them
        os._exit(0)
    if FAULT in {"dies", "leaves a child"}:
        sys.stderr.write("out of luck\n")
        sys.stderr.flush()
        os._exit(3)
    if FAULT == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "other id":
        say(id=number + 7, item={})
    if FAULT == "both":
        say(id=number, item={}, result=None)
    if FAULT == "dies with what it was started with":
        die(f"login of app with {UNSHOWN} refused\n")
    if FAULT == "quotes what it was started with":
        sys.stdout.write(f"login of app with {UNSHOWN} refused\n")
    if FAULT == "counts what it was started with":
        say(id=number, item={"state": "FAILURE", "message": f"login of app with {UNSHOWN} refused"})
    if FAULT == "fails":
        say(id=number, error={"message": "the key " + params["secrets"].get("key", "") + " was refused"})
        return
    if FAULT in {"hangs in run", "deaf"}:
        if len(sys.argv) > 2:
            Path(sys.argv[2]).touch()
        for_ever()
    say(id=number, result=None)
    if FAULT == "talks on":
        say(id=number, item={"late": True})


def answer(number: int, method: str, params: dict) -> None:
    """Answer one call."""
    if method == "hello":
        if FAULT == "hangs in hello":
            for_ever()
        version = Path(sys.argv[2]).read_text().strip() if FAULT == "version" else "1.0"
        say(id=number, result={"protocol": 9 if FAULT == "protocol" else 1, "version": version})
    elif method == "init":
        if FAULT == "hangs in init":
            for_ever()
        wrong = {"wrong init": ["a", "list"], "fact with a secret": {"dsn": f"app:{UNSHOWN}@db"}}
        say(id=number, result=wrong.get(FAULT, {"pid": os.getpid()}))
    elif method == "verify":
        if FAULT == "tells its request":
            die(f"cannot read {json.dumps({'params': params})}\nwith:\n{params['secrets']['key']}\n")
        if FAULT == "echoes its request":
            sys.stdout.write(f"cannot read {json.dumps({'params': params})}\n")
            sys.stdout.flush()
        elif FAULT == "long refusal":
            say(id=number, error={"message": "x" * 980 + params["secrets"]["key"]})
        elif FAULT == "repeats its secret":
            sys.stderr.write(params["secrets"]["key"] * 5000)
            sys.stderr.flush()
            os._exit(3)
        elif FAULT == "verify":
            say(id=number, error={"message": "cannot log in with " + params["secrets"].get("key", "")})
        else:
            say(id=number, result=None)
    elif method == "tasks":
        wrong = {
            "wrong task": "no mapping",
            "task with what it was started with": {"dsn": f"app:{UNSHOWN}@db"},
            "task with a secret": {"note": ["with " + params["secrets"].get("key", "")]},
        }
        say(id=number, item=wrong.get(FAULT, {"n": 1}))
        say(id=number, result=None)
    else:
        run(number, params)


if FAULT in {"deaf", "stays"}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if FAULT in {"forks", "deaf"} and os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for_ever()
if FAULT == "exits at once":
    sys.exit("no licence")
if FAULT == "noisy":
    sys.stderr.write("x" * 10_000_000)
for text in sys.stdin:
    request = json.loads(text)
    answer(request["id"], request["method"], request["params"])
if FAULT in {"deaf", "stays"}:
    for_ever()
