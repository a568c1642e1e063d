"""Tests of `cairnmq backup` and `cairnmq restore` beside a busy broker, and of their output."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from tests.harness.clients.peers import Peer
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess, broker

STUCK = """
import signal
import sys
import cairnmq.cli.store.backup as command
from cairnmq.cli.main import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it runs in the background
made = command.back_up

def stuck(what, done, total):
    if what == "copying":
        print("copying", flush=True)
        sys.stdin.read()

command.back_up = lambda store, target, clock, progress, *where: made(store, target, clock, stuck, *where)
main()
"""


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `cairnmq` with *arguments* until it ends, and return its result."""
    return subprocess.run([CAIRNMQ, *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE_S)


def told(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert (result.returncode, result.stderr) == (0, ""), result
    return dict(json.loads(result.stdout))


class Traffic:
    """A client that sends numbered durable messages of 20 KB and consumes most of them."""

    def __init__(self, running: BrokerProcess) -> None:
        self.confirmed: set[int] = set()
        self.taken: set[int] = set()
        self.surely_taken: set[int] = set()
        """Messages surely dequeued by the broker, as a message sent after their accept is confirmed."""
        self.sent = 0
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._run, args=(running.port,))
        self._thread.start()

    def _run(self, port: int) -> None:
        try:
            connection = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE_S)
            sender, receiver = connection.create_sender("orders"), connection.create_receiver("orders", credit=1)
            while not self._stop.is_set():
                self.sent += 1
                sender.send(Message(body=body(self.sent), durable=True))
                self.confirmed.add(self.sent)
                self.surely_taken |= self.taken
                if self.sent % 10:  # the backlog grows slowly, so that old containers become empty
                    message = receiver.receive(timeout=DEADLINE_S)
                    self.taken.add(number_of(message.body))
                    receiver.accept()
                with self._progress:
                    self._progress.notify_all()
            connection.close()
        except BaseException as error:
            with self._progress:
                self.failure = error
                self._progress.notify_all()

    def wait_for(self, sent: int) -> None:
        """Wait until message number *sent* was sent; the deadline applies to each message, not to all of them."""
        with self._progress:
            while self.sent < sent and self.failure is None:
                assert self._progress.wait(DEADLINE_S)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self.failure is None


def body(number: int) -> str:
    return f"{number:08d}" + chr(97 + number % 26) * 20_000


def number_of(content: object) -> int:
    number = int(str(content)[:8])
    assert content == body(number)
    return number


def drain(running: BrokerProcess) -> list[int]:
    """Receive and accept all messages of the queue, check that each is complete, and return their numbers."""
    peer = Peer(running.port)
    receiver = peer.receiver("orders")
    found: list[int] = []
    while received := peer.drain(receiver, 500):
        for one in received:
            found.append(number_of(one.body))
            one.accept()
    peer.close()
    return found


def test_a_backup_in_the_middle_of_traffic(tmp_path: Path) -> None:
    """A restored backup has each message confirmed before and not dequeued since, once and complete; all were sent."""
    with broker(tmp_path / "data", "--container-size", "524288") as running:
        traffic = Traffic(running)
        for round in range(2):
            traffic.wait_for((round + 1) * 150)
            confirmed, taken = set(traffic.confirmed), set(traffic.surely_taken)
            made = told(run("backup", tmp_path / "data", tmp_path / f"copy {round}", "--json"))
            restored = told(run("restore", tmp_path / f"copy {round}", tmp_path / f"new {round}", "--json"))
            assert restored["messages"] == made["messages"]
            assert (made["backup"], restored["restored"]) == (
                str(tmp_path / f"copy {round}"),
                str(tmp_path / f"new {round}"),
            )
            traffic.wait_for(traffic.sent + 20)
            with broker(tmp_path / f"new {round}") as again:
                again.wait_for(rf" recovered {made['messages']} messages on 1 queue .*closed cleanly")
                found = drain(again)
            assert len(found) == len(set(found)) == made["messages"]
            assert confirmed - traffic.taken <= set(found) <= set(range(1, traffic.sent + 1)) - taken
        traffic.stop()
        assert running.stop() == 0
    with broker(tmp_path / "data") as running:
        assert set(drain(running)) == traffic.confirmed - traffic.taken


def test_a_stopped_store(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as running:
        connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
        connection.create_sender("orders").send(Message(body=body(7), durable=True))
        connection.close()
        assert running.stop() == 0
    result = run("backup", tmp_path / "data", tmp_path / "copy")
    assert result.returncode == 0
    assert result.stdout.startswith(f"backup {tmp_path}/copy: 1 message, LSN ")
    result = run("restore", tmp_path / "copy", tmp_path / "new")
    assert result.stdout.startswith(f"restored {tmp_path}/new: 1 message on 1 queue, LSN ")
    assert "orders" in run("dump", tmp_path / "copy").stdout
    with broker(tmp_path / "new") as running:
        assert drain(running) == [7]


@contextmanager
def stuck_backup(store: Path, target: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a backup process that is blocked while it copies; kill it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, "backup", str(store), str(target)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "copying\n"
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=DEADLINE_S)


def containers(store: Path) -> int:
    return len(list((store / "journal").glob("*.cairn")))


def test_a_killed_backup_harms_nobody_and_lets_go(tmp_path: Path) -> None:
    store = tmp_path / "data"
    with broker(store, "--container-size", "524288") as running:
        traffic = Traffic(running)
        traffic.wait_for(50)
        with stuck_backup(store, tmp_path / "copy") as process:
            traffic.wait_for(traffic.sent + 400)  # 8 MB: containers are not recycled during the backup
            held = containers(store)
            assert held > 12
            process.send_signal(signal.SIGKILL)
            process.wait(DEADLINE_S)
        for _ in range(100):
            traffic.wait_for(traffic.sent + 20)
            if containers(store) < held:
                break
        else:
            pytest.fail("what was held is neither used again nor trimmed")
        traffic.stop()
        assert (tmp_path / "copy.partial").exists()
        assert not (tmp_path / "copy").exists()
        assert told(run("backup", store, tmp_path / "copy", "--json"))["messages"] > 0  # removes the partial backup
        assert not (tmp_path / "copy.partial").exists()
        assert set(drain(running)) == traffic.confirmed - traffic.taken


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_backup_leaves_nothing(tmp_path: Path, number: int) -> None:
    with broker(tmp_path / "data") as running:
        with stuck_backup(tmp_path / "data", tmp_path / "copy") as process:
            process.send_signal(number)
            out, err = process.communicate(timeout=DEADLINE_S)
            assert (out, err) == ("", f"cairnmq: backup interrupted: {tmp_path}/copy was not made\n")
            assert process.returncode == 128 + number
        assert sorted(os.listdir(tmp_path)) == ["data"]
        assert running.stop() == 0


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_full_target_disk_is_one_line_and_leaves_nothing(tmp_path: Path, command: str) -> None:
    """A full target disk is reported in one line and leaves no files; a file size limit simulates it."""
    with broker(tmp_path / "data") as running:
        assert running.stop() == 0
    told(run("backup", tmp_path / "data", tmp_path / "copy", "--json"))
    source = tmp_path / ("data" if command == "backup" else "copy")
    limited = f'ulimit -f 512; exec "{CAIRNMQ}" {command} "{source}" "{tmp_path}/target"'
    result = subprocess.run(["sh", "-c", limited], capture_output=True, text=True, timeout=DEADLINE_S)
    assert result.returncode == 1
    assert result.stderr.startswith(f"cairnmq: {tmp_path}/target")
    assert "no space left" in result.stderr
    assert result.stderr.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["copy", "data"]


def test_what_is_refused_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with broker(tmp_path / "data") as running:
        told(run("backup", tmp_path / "data", tmp_path / "copy", "--json"))
        for arguments, status, reason in (
            (("backup", tmp_path / "empty", tmp_path / "x"), 2, "not a store: it has no journal; name the --store-dir"),
            (("backup", tmp_path / "copy", tmp_path / "x"), 2, "a backup, not a store; copy its files as they are"),
            (("backup", tmp_path / "data", tmp_path / "copy"), 1, "the directory is not empty"),
            (("backup", tmp_path / "data", "/proc/x/copy"), 1, "/proc/x"),
            (("restore", tmp_path / "empty", tmp_path / "x"), 2, "not a backup: manifest.json is missing"),
            (("restore", tmp_path / "nowhere", tmp_path / "x"), 2, "no such directory"),
            (("restore", tmp_path / "copy", tmp_path / "data"), 1, "a broker runs on this store"),
            (("broker", "--port", "0", "--store-dir", tmp_path / "copy"), 1, "a backup, which must stay as it is"),
        ):
            result = run(*arguments)
            assert (result.returncode, result.stdout) == (status, ""), result
            assert result.stderr.startswith("cairnmq: ")
            assert reason in result.stderr
            assert result.stderr.count("\n") == 1
        assert running.stop() == 0


@pytest.mark.parametrize("arguments", [("backup",), ("restore", "x"), ("backup", "--all")])
def test_wrong_arguments_are_told_with_status_2(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert "Usage:" in result.stderr


def test_bars_are_shown_on_a_terminal_only(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as running:
        assert running.stop() == 0
    terminal, end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    command = [CAIRNMQ, "backup", str(tmp_path / "data"), str(tmp_path / "copy"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=end, env=environment) as process:
        os.close(end)
        shown = b""
        try:
            while piece := os.read(terminal, 4096):
                shown += piece
        except OSError:
            pass  # raised when the terminal is closed
        assert process.stdout is not None
        assert json.loads(process.stdout.read())["messages"] == 0
    os.close(terminal)
    for what in (b"reading", b"copying", b"checking"):
        assert what in shown
