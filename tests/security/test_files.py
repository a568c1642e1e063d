"""Files of a broker and its tools are private to their owner at any umask."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from cairnmq.base.errors import CairnError, SharedDirectory
from cairnmq.base.private_files import open_private
from cairnmq.store import open_store
from cairnmq.tools.explain.stat import stat_store
from tests.harness.process import CAIRNMQ, DEADLINE_S, broker


@pytest.fixture(params=[0o000, 0o077], ids=["umask 000", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def wrong(directory: Path) -> dict[str, str]:
    """Return the modes of files that are not 0600 and of directories that are not 0700."""
    found = {}
    for path in (directory, *directory.rglob("*")):
        with suppress(FileNotFoundError):  # a running broker creates and deletes files
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
        if umask:  # umask 000 covers the remaining checks
            return
        outputs = tmp_path / "outputs"
        os.mkdir(outputs, 0o700)
        lines = outputs / "lines.json"
        with open(lines, "wb", opener=open_private) as out:
            run("dump", store, "--complete", stdout=out)
        with open(lines, "rb") as given:
            run("load", outputs / "loaded", stdin=given)
        run("as-of", store, "end", "--restore", outputs / "as-it-was")
        run("sql", store, "select * from messages", "--arrow", outputs / "rows.arrow")
        for form in ("parquet", "delta", "iceberg"):
            run("export", store, outputs / "deep" / form, "--format", form)
        assert len(list(outputs.rglob("*"))) > 30
        assert wrong(outputs) == {}  # W15, attacks 72 and 73


def run(*command: object, **streams: Any) -> None:
    done = subprocess.run(
        [CAIRNMQ, *map(str, command)], stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S,
        **{"stdout": subprocess.DEVNULL, **streams},
    )  # fmt: skip
    assert done.returncode == 0, (command, done.stderr)


@pytest.mark.parametrize("kind", ["journal", "sql"])
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_directory_that_others_can_write_to_is_no_store(tmp_path: Path, kind: str, mode: int) -> None:  # W15, attack 74
    store = tmp_path / "store"
    store.mkdir()
    store.chmod(mode)
    with pytest.raises(SharedDirectory, match="can write to it") as caught:
        open_store(str(store), kind)
    assert caught.value.remedy.startswith(f"chmod go-w {store}, or name a directory in it")
    assert list(store.iterdir()) == []
    store.chmod(mode & ~0o022)
    open_store(str(store), kind).close()


@pytest.mark.parametrize(("kind", "name"), [
    ("journal", "lock"), ("journal", "wiring.sqlite"), ("sql", "lock"), ("sql", "store.sqlite"),
])  # fmt: skip
def test_symbolic_link_in_a_store_is_not_followed(tmp_path: Path, kind: str, name: str) -> None:  # W15, attack 74
    """The target of the link is neither created nor changed, whether it has content, is empty, or does not exist."""
    store, victim = tmp_path / "store", tmp_path / "victim"
    for content in (b"unharmed", b"", None):
        store.mkdir(mode=0o700)
        if content is not None:
            victim.write_bytes(content)
        (store / name).symlink_to(victim)
        with suppress(CairnError):  # otherwise the link itself was replaced
            open_store(str(store), kind).close()
        assert (victim.read_bytes() if victim.exists() else None) == content
        shutil.rmtree(store)
        victim.unlink(missing_ok=True)


@pytest.mark.parametrize("part", ["checkpoint", "checkpoint/data.mdb"])
def test_checkpoint_that_is_a_symbolic_link_is_refused(tmp_path: Path, part: str) -> None:  # W15
    """The broker neither reads nor writes through the link, and `stat` does not read through the link."""
    store, victim = tmp_path / "store", tmp_path / "victim"
    with open_store(str(store)) as opened:
        opened.queue("orders").put(b"one").result()
    there = store / part
    there.rename(victim)
    there.symlink_to(victim)
    before = tree(victim)
    with pytest.raises(CairnError, match=f"{there}: a symbolic link, which is not followed; put the directory itself"):
        open_store(str(store))
    assert tree(victim) == before
    found = stat_store(str(store), lambda what, done, total: None, None, None)
    assert found.complete
    assert not found.log["checkpoint_lsn"]
    assert found.log["messages"] == 1
    there.unlink()
    with open_store(str(store)) as opened:  # the remedy
        opened.queue("orders").put(b"two").result()
        assert [*opened.queue("orders").peek()] == [b"one", b"two"]
    assert tree(victim) == before


def tree(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return {str(one): one.read_bytes() for one in files}


def test_container_is_not_written_through_a_symbolic_link(tmp_path: Path) -> None:  # W15
    store, victims = tmp_path / "store", tmp_path / "victims"
    with open_store(str(store)) as opened:
        opened.queue("orders").put(b"one").result()
    victims.mkdir()
    for there in list((store / "journal").iterdir()):
        there.rename(victims / there.name)
        there.symlink_to(victims / there.name)
    before = tree(victims)
    assert before
    with pytest.raises(CairnError, match="symbolic link"):
        open_store(str(store))
    assert tree(victims) == before
