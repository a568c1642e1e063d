"""Tests of the end of commands that read a store: one rule for all, whatever their arguments and their output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cairnmq.tools.lab import kernel
from cairnmq.tools.lab.disks import unavailable_reason
from tests.harness.mounted_disk import privately_mounted_disk
from tests.harness.process import CAIRNMQ, DEADLINE_S

if TYPE_CHECKING:
    from tests.tools.conftest import Dump, Store

HOSTILE = "a\x1b[2J\x9b[red]b[/c]"
SHOWN = "a\\x1b[2J\\x9b[red]b[/c]"
ASK = [
    ("dump", "{}"), ("dump", "{}", "--json"), ("dump", "{}", "--summary"), ("verify", "{}"), ("verify", "{}", "--json"),
    ("stat", "{}"), ("stat", "{}", "--json"), ("explain", "tail", "{}"), ("explain", "space", "{}"),
    ("trace", "{}", "{id}"), ("trace", "{}", "{id}", "--json"), ("as-of", "{}", "end"),
    ("as-of", "{}", "end", "--json"), ("sql", "{}", "select * from records"),
    ("sql", "{}", "select * from records", "--json"),
]  # fmt: skip
"""All commands that take a store and print its contents."""


def filled(store: Store) -> int:
    """Put messages into several containers, and return the ID of the first one."""
    store.name_queues("orders", HOSTILE)
    [first, *_] = store.fill(3)
    store.put(b"x", queue_id=2)
    store.journal.close()
    return first


def call(words: tuple[str, ...], path: Path, message_id: int = 1) -> list[str]:
    return [word.replace("{}", str(path)).replace("{id}", str(message_id)) for word in words]


def to_nobody(command: list[str]) -> tuple[int, str]:
    """Run a command with its output to a closed pipe, and return its status and its standard error."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run([CAIRNMQ, *command], stdout=write, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S)
    finally:
        os.close(write)
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", ASK, ids=" ".join)
def test_a_store_that_is_not_there_gives_2(tmp_path: Path, command: Dump, words: tuple[str, ...]) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "photo.jpg").write_bytes(b"\xff\xd8")
    for name in ("nowhere", "foreign"):
        found = command(*call(words, tmp_path / name))
        assert (found.status, found.out, len(found.err.splitlines())) == (2, "", 1), found
        assert found.err.startswith("cairnmq: ")
    for name in ("nowhere", "foreign"):
        found = command("replay", tmp_path / name, "--to", "127.0.0.1:1")
        assert (found.status, found.out, len(found.err.splitlines())) == (2, "", 1), found


@pytest.mark.parametrize("words", ASK, ids=" ".join)
def test_a_closed_pipe_is_no_finding(store: Store, words: tuple[str, ...]) -> None:
    assert to_nobody(call(words, store.path, filled(store))) == (0, "")


@pytest.mark.parametrize("words", [one for one in ASK if one[0] in ("dump", "verify", "stat", "explain")], ids=" ".join)
def test_a_closed_pipe_hides_no_finding(store: Store, words: tuple[str, ...]) -> None:
    filled(store)
    store.overwrite(512 * 1024 + 512, bytes(64))
    status, said = to_nobody(call(words, store.path))
    shows_less = words[0] == "dump" and "--summary" not in words  # it stops reading when its output is closed
    assert status in ((0, 1) if shows_less else (1,)), said
    assert "Traceback" not in said


@pytest.mark.parametrize("words", ASK, ids=" ".join)
def test_a_full_disk_for_what_is_found_gives_2(store: Store, words: tuple[str, ...]) -> None:
    command = [CAIRNMQ, *call(words, store.path, filled(store))]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S)
    assert done.returncode == 2
    assert done.stderr == "cairnmq: standard output: No space left on device; the output there is incomplete\n"


@pytest.mark.parametrize("words", [one for one in ASK if "--json" not in one], ids=" ".join)
def test_nothing_in_a_name_steers_the_terminal(store: Store, command: Dump, words: tuple[str, ...]) -> None:
    found = command(*call(words, store.path, filled(store)))
    assert not [char for char in found.out + found.err if not char.isprintable() and char != "\n"]
    assert words[0] in ("verify", "trace", "sql") or words[1] == "tail" or "--summary" in words or SHOWN in found.out


def test_no_name_in_an_error_steers_the_terminal(store: Store, command: Dump, tmp_path: Path) -> None:
    filled(store)
    for arguments in (("dump", store.path, "--queue", "no"), ("as-of", store.path, "end", "--queue", "no")):
        found = command(*arguments)
        assert (found.status, SHOWN in found.err, "\x1b" in found.err) == (2, True, False), found
    store.overwrite(512 * 1024 + 512, bytes(64))
    salvaged = command("salvage", store.path, "--to", tmp_path / "new")
    assert (salvaged.status, SHOWN in salvaged.out, "\x1b" in salvaged.out) == (3, True, False), salvaged


def test_an_empty_id_is_that_of_no_message(store: Store, command: Dump) -> None:
    filled(store)
    for option in ("--message-id", "--correlation-id"):
        found = command("trace", store.path, option, "")
        assert (found.status, "an empty id is that of no message" in found.err) == (2, True)


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999"])
@pytest.mark.parametrize(
    "words",
    [
        ("replay", "{}", "--to", "127.0.0.1:1", "--rate"), ("as-of", "{}", "end", "--resend", "127.0.0.1:1", "--rate"),
        ("perftest", "--rate"), ("perftest", "--interval-pub"), ("perftest", "--patience"),
        ("calibrate", "{}", "--seconds"), ("ctl", "--timeout"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_numbers_that_are_not_finite_are_refused(
    tmp_path: Path, command: Dump, words: tuple[str, ...], number: str
) -> None:
    found = command(*call(words, tmp_path), number, *(("queues", "list") if words[0] == "ctl" else ()))
    says_so = "Invalid value for '--" in found.err
    if not says_so:  # durations have an error message of their own
        says_so = f"{words[-1]} {number}" in found.err and "invalid duration" in found.err
    assert (found.status, says_so) == (2, True), found


@pytest.mark.parametrize(
    "options",
    [
        ("--qt", "1000000000000"), ("--count", "1000000000000000"), ("--npubs", "99999999"), ("--size", "900G"),
        ("--qt", "3000", "--npubs", "3000"), ("--window", "99999999999"), ("--credit", "99999999999"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_no_machine_can_do_is_refused_at_once(command: Dump, options: tuple[str, ...]) -> None:
    found = command("perftest", "--url", "127.0.0.1:1", *options)
    assert (found.status, "Error: " in found.err) == (2, True), found


def test_a_host_that_nobody_knows_is_told(store: Store, command: Dump) -> None:
    filled(store)
    found = command("replay", store.path, "--to", "amqp://unknown.invalid", "--speed", "max")
    assert found.status == 1
    reason = "amqp://unknown.invalid:5672: can't be reached: unknown host name; check the host name"
    assert found.err == f"cairnmq: sending: {reason}; accepted: 0 messages\n"


def test_as_of_a_future_time_warns_and_shows_the_end(store: Store, command: Dump) -> None:
    filled(store)
    found, end = command("as-of", store.path, "2999-01-01"), command("as-of", store.path, "end")
    assert (found.status, found.out) == (0, end.out)
    told = [line for line in found.err.splitlines() if "future" in line]
    assert told == ["cairnmq as-of: warning: 2999-01-01 is in the future; the end of the log is used"]


def test_where_nobody_listens_no_broker_went_away(store: Store, command: Dump) -> None:
    filled(store)
    for words in (("replay", store.path, "--to"), ("as-of", store.path, "end", "--resend")):
        found = command(*words, "127.0.0.1:1")
        told = "amqp://127.0.0.1:1: can't be reached: connection refused; is a broker running there?"
        assert (found.status, told in found.err) == (1, True), found


def test_a_size_that_is_none_is_a_wrong_call(store: Store, command: Dump) -> None:
    assert command("sql", store.path, "select 1", "--memory-limit", "x").status == 2


@pytest.mark.skipif(bool(unavailable_reason("ext4")), reason=unavailable_reason("ext4"))
@pytest.mark.parametrize("room", ["4k", "64k", "600k", "1100k", "1700k"])
@pytest.mark.parametrize("verb", ["salvage", "load"])
def test_a_full_disk_for_a_new_store_is_told(store: Store, tmp_path: Path, room: str, verb: str) -> None:
    """The disk may be full at any part of the store: wiring, journal, checkpoint, quarantine."""
    filled(store)
    complete = subprocess.run([CAIRNMQ, "dump", "--complete", store.path], capture_output=True, timeout=DEADLINE_S)
    store.overwrite(512 * 1024 + 512, bytes(64))

    def run() -> subprocess.CompletedProcess[bytes]:
        with privately_mounted_disk(tmp_path / "small", room) as small:
            words = [store.path, "--to", small / "new"] if verb == "salvage" else [small / "new"]
            command = [CAIRNMQ, verb, *words]
            done = subprocess.run(command, input=complete.stdout, capture_output=True, timeout=DEADLINE_S)
            assert not (small / "new").exists()
            return done

    done = kernel.in_private_mounts(run)()
    assert done.returncode == (1 if verb == "salvage" else 2), done
    assert b"Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(b"cairnmq: "), done.stderr.decode()


def cpu_s(process: subprocess.Popen[str]) -> float:
    figures = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(figures[11]) + int(figures[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_no_temporary_files(
    store: Store, tmp_path: Path, number: signal.Signals, after_s: float
) -> None:
    """The signal arrives *after_s* of CPU time into the query. DuckDB swallows exceptions that are raised within it."""
    filled(store)
    spill = tmp_path / "spill"
    spill.mkdir()
    query = "select count(*) from range(100000000000) one, records"
    running = subprocess.Popen(
        [CAIRNMQ, "sql", store.path, query], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(spill)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    deadline_s = time.monotonic() + DEADLINE_S
    while not any(spill.iterdir()):
        assert time.monotonic() < deadline_s
        assert running.poll() is None
        time.sleep(0.05)
    begun_s = cpu_s(running)
    while cpu_s(running) < begun_s + after_s:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    running.send_signal(number)
    out, err = running.communicate(timeout=DEADLINE_S)
    assert (running.returncode, out, "Traceback" in err) == (128 + number, "", False), err
    assert not any(spill.iterdir())


SIGNALED = """
import os, signal, sys, tempfile
from cairnmq.cli.common.signals import Ended, temporary_directory, terminable

create = tempfile.mkdtemp

def create_and_end(*args):
    place = create(*args)
    os.kill(os.getpid(), signal.SIGTERM)
    return place

tempfile.mkdtemp = create_and_end
try:
    with terminable(), temporary_directory("cairnmq-"):
        sys.exit("not ended")
except Ended:
    pass
"""


def test_a_signal_leaves_no_directory_that_is_being_created(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", SIGNALED], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not any(tmp_path.iterdir())
