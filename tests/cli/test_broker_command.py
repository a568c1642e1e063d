"""Tests of the command `cairnmq broker`: output, shutdown, and refused arguments."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
from pathlib import Path

import pytest
from crc32c import crc32c
from proton import Message
from proton.utils import BlockingConnection

from tests.harness.process import CAIRNMQ, DEADLINE_S, broker
from tests.harness.router.joined import until


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `cairnmq` until it ends, and return its result."""
    return subprocess.run([CAIRNMQ, *arguments], capture_output=True, text=True, timeout=DEADLINE_S)


def every_byte(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def one_line(result: subprocess.CompletedProcess[str], status: int = 1) -> str:
    """Return the error of a refused start: one line on standard error."""
    assert result.returncode == status, result
    [line] = result.stderr.splitlines()
    assert line.startswith("cairnmq: ")
    return line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_and_stops_cleanly(tmp_path: Path, number: int) -> None:
    store = tmp_path / "data"
    with broker(store) as running:
        assert running.wait_for(r" listening on 127\.0\.0\.1:\d+$")
        assert running.wait_for(rf" storing in {store}$")
        assert running.wait_for(" new store$")
        assert running.wait_for(f" broker.store-created created a new store in {store}")
        connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
        connection.create_sender("orders").send(Message(body="one", durable=True))
        assert running.stop(number) == 0  # with a client still connected
        running.wait_for("everything is on the disk")
    with broker(store) as running:
        running.wait_for(r" recovered 1 message on 1 queue from .*\d+ records in .*closed cleanly")
        connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
        assert connection.create_receiver("orders").receive(timeout=DEADLINE_S).body == "one"
        connection.close()


def test_broker_creates_no_store_if_one_is_required(tmp_path: Path) -> None:
    """With `--require-store`, a missing store (such as an unmounted volume) is an error and is not created."""
    store = tmp_path / "data"
    done = subprocess.run(
        [CAIRNMQ, "broker", "--store-dir", store, "--port", "0", "--require-store"], capture_output=True, text=True,
        timeout=DEADLINE_S,
    )  # fmt: skip
    remedy = "mount or restore it, or start without --require-store to create one"
    assert (done.returncode, done.stderr) == (2, f"cairnmq: {store}: no store is there; {remedy}\n")
    assert not store.exists()
    with broker(store) as running:
        running.wait_for(" new store$")
    with broker(store, "--require-store") as running:
        running.wait_for(" recovered 0 messages on 0 queues ")


def test_a_second_broker_on_a_store_is_refused(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as running:
        refused = one_line(run("broker", "--store-dir", str(tmp_path / "data"), "--port", "0"))
        assert f"another program has it open (process {running.process.pid})" in refused
        BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S).close()  # the first broker is not affected


def test_a_port_in_use_is_refused_before_the_store_is_touched(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = one_line(run("broker", "--store-dir", str(tmp_path / "data"), "--port", str(port)))
    assert f"127.0.0.1:{port}: can't listen there" in refused
    assert not (tmp_path / "data").exists()


def test_an_open_address_needs_to_be_meant(tmp_path: Path) -> None:
    arguments = ("broker", "--store-dir", str(tmp_path / "data"), "--port", "0", "--listen", "0.0.0.0")
    assert "give --anonymous twice" in one_line(run(*arguments), 2)
    assert "give --anonymous twice" in one_line(run(*arguments, "--anonymous"), 2)
    with broker(tmp_path / "data", "--listen", "0.0.0.0", "--anonymous", "--anonymous") as running:
        running.wait_for(r" listening on 0\.0\.0\.0:")


def test_an_impossible_store_directory_is_refused() -> None:
    assert "/proc/x" in one_line(run("broker", "--store-dir", "/proc/x", "--port", "0"))


def test_a_foreign_directory_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    before = every_byte(tmp_path)
    assert "not a CairnMQ store" in one_line(run("broker", "--store-dir", str(tmp_path), "--port", "0"))
    assert every_byte(tmp_path) == before


@pytest.mark.parametrize(("file", "head_bytes"), [("journal/log.mark", 88), ("journal/00000001.cairn", 80)])
def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path, file: str, head_bytes: int) -> None:
    store = tmp_path / "data"
    with broker(store) as running:
        assert running.stop() == 0
    path = store / file
    data = bytearray(path.read_bytes())
    for place in (0, 4096) if file.endswith("mark") else (0,):
        struct.pack_into("<H", data, place + 8, 2)
        struct.pack_into("<I", data, place, crc32c(data[place + 4 : place + head_bytes]))
    path.write_bytes(data)
    before = every_byte(store)
    del before["lock"]  # contains the process ID of the last attempt
    assert "newer than this program's format" in one_line(run("broker", "--store-dir", str(store), "--port", "0"))
    after = every_byte(store)
    del after["lock"]
    assert after == before


def test_a_corrupt_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    store = tmp_path / "data"
    with broker(store) as running:
        connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
        sender = connection.create_sender("orders")
        for number in range(3):
            sender.send(Message(body=f"message {number}", durable=True))
        assert running.stop() == 0
    path = next(path for path in sorted((store / "journal").glob("*.cairn")) if b"message 1" in path.read_bytes())
    data = path.read_bytes()
    path.write_bytes(data.replace(b"message 1", b"massage 1"))
    shutil.rmtree(store / "checkpoint")  # so that the start reads the whole log
    refused = one_line(run("broker", "--store-dir", str(store), "--port", "0"))
    assert "LSN" in refused
    assert "was durable and can't be read" in refused
    assert b"massage 1" in path.read_bytes()


def test_a_disk_too_small_for_a_journal_is_one_line(tmp_path: Path) -> None:
    """A disk too small for the journal is reported in one line; a file size limit simulates the full disk."""
    limited = f'ulimit -f 512; exec "{CAIRNMQ}" broker --store-dir "{tmp_path}/data" --port 0'
    result = subprocess.run(["sh", "-c", limited], capture_output=True, text=True, timeout=DEADLINE_S)
    assert "no space left" in one_line(result)
    assert not list((tmp_path / "data" / "journal").glob("*.cairn*")), "a container that can't be made leaves no file"
    with broker(tmp_path / "data") as running:  # with more space, the broker starts
        assert running.stop() == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("broker",),
        ("broker", "--store-dir", "x", "--port", "99999"),
        ("broker", "--store-dir", "x", "--sotre"),
        ("brkoer",),
    ],
)
def test_wrong_arguments_are_told_with_status_2(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """E58: invalid arguments, including a missing `--store-dir`, have status 2 and a usage text."""
    result = subprocess.run(
        [CAIRNMQ, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path, env=dict(os.environ)
    )
    assert result.returncode == 2
    assert "Usage:" in result.stderr
    assert not any(tmp_path.iterdir())


def test_what_leaves_the_journal_is_archived(tmp_path: Path) -> None:
    store, archive = tmp_path / "data", tmp_path / "archive"
    options = ("--archive-dir", str(archive), "--archive-max-size", "3M", "--archive-max-age", "7d")
    with broker(store, *options, "--container-size", str(512 << 10)) as running:
        running.wait_for(rf" archiving in {archive}$")
        connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
        sender, receiver = connection.create_sender("orders"), connection.create_receiver("orders")
        for number in range(60):
            sender.send(Message(body=f"message {number:03d}" + "." * 50_000, durable=True))
            receiver.receive(timeout=DEADLINE_S)
            receiver.accept()
        connection.close()
        assert running.stop() == 0
    assert list(archive.glob("*.cairn"))
    dumped = run("dump", str(archive), str(store), "--json", "--payload", "80", "--type", "start")
    assert (dumped.returncode, dumped.stdout.count("\n")) == (0, 60 + 1), "the last line is the end's"
    assert dumped.stdout.count('"queue":"orders"') == 60
    with broker(store, "--archive-dir", str(archive), "--archive-max-size", "1M") as running:
        until(lambda: len(list(archive.glob("*.cairn"))) <= 2, "the archive to keep its limit")
        assert running.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--archive-max-size", "1G"), "there is no archive; name one with --archive-dir"),
        (("--archive-dir", "a", "--archive-max-size", "100K"), "give a larger --archive-max-size"),
        (("--archive-dir", "/proc/x"), "/proc/x: create failed"),
        (("--archive-dir", "data/journal"), "the archive can't be the journal's own directory"),
    ],
)
def test_an_impossible_archive_is_refused(tmp_path: Path, arguments: tuple[str, ...], complaint: str) -> None:
    command = [CAIRNMQ, "broker", "--store-dir", "data", "--port", "0", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
    assert complaint in one_line(result, 1 if complaint.startswith("/proc") else 2)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--archive-max-size", "lots"), "invalid size; give bytes, or a number with a unit"),
        (("--archive-max-size", "0"), "invalid size"),
        (("--archive-max-age", "7y"), "invalid duration; give a number with a unit"),
    ],
)
def test_size_and_duration_that_are_invalid_are_one_line(
    tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    done = run("broker", "--store-dir", str(tmp_path / "data"), "--archive-dir", str(tmp_path / "a"), *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"cairnmq: {' '.join(arguments)}: {complaint}")


@pytest.mark.parametrize(
    ("address", "remedy"),
    [
        ("no-such-host.invalid", "name an address of this machine"),
        ("127.0.0.1:5673", "give the port as --listen 127.0.0.1 --port 5673"),
    ],
)
def test_listen_address_that_does_not_exist_is_named(tmp_path: Path, address: str, remedy: str) -> None:  # usability 38
    command = [CAIRNMQ, "broker", "--store-dir", str(tmp_path / "store"), "--listen", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 1
    assert done.stderr == f"cairnmq: --listen {address}: unknown host name; {remedy}\n"
