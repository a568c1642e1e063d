"""Everything a broker and its tools write is nobody else's to read, whatever the umask."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from tests.process import CAIRNMQ, DEADLINE_S, broker


@pytest.fixture(params=[0o000, 0o077], ids=["umask 000", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def wrong(directory: Path) -> dict[str, str]:
    """Files that are not 0600, and directories that are not 0700, with their modes."""
    found = {}
    for path in (directory, *directory.rglob("*")):
        with suppress(FileNotFoundError):  # a broker that runs has files come and go
            at = path.lstat().st_mode
            if stat.S_IMODE(at) != (0o700 if stat.S_ISDIR(at) else 0o600):
                found[str(path.relative_to(directory.parent))] = f"{stat.S_IMODE(at):04o}"
    return found


@pytest.mark.parametrize("kind", ["journal", "sql"])
def test_files_are_private(tmp_path: Path, umask: int, kind: str) -> None:
    store, archive, copy, again = (tmp_path / name for name in ("store", "archive", "copy", "again"))
    options = ["--archive-dir", str(archive), "--container-size", str(512 << 10)] if kind == "journal" else []
    with broker(store, "--store", kind, *options) as running:
        connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
        sender, receiver = connection.create_sender("orders"), connection.create_receiver("orders")
        for number in range(30):
            sender.send(Message(body=f"{number}" + "." * 50_000, durable=True))
            if number:
                receiver.receive(timeout=DEADLINE_S)
                receiver.accept()
        assert wrong(store) == {}
        connection.close()
        assert running.stop() == 0
    assert wrong(store) == {}
    if kind == "journal":
        assert list(archive.glob("*.cairn"))
        assert wrong(archive) == {}
        for command in (
            ["backup", store, copy],
            ["restore", copy, again],
            ["salvage", store, "--to", tmp_path / "mended"],
        ):
            done = subprocess.run([CAIRNMQ, *map(str, command)], capture_output=True, text=True, timeout=DEADLINE_S)
            assert done.returncode == 0, done.stderr
        for made in (copy, again, tmp_path / "mended"):
            assert wrong(made) == {}
