"""Tests of the dump command in pipelines, and on files that it must not change."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.tools.conftest import Dump, Store

RUN = f"{sys.executable} -c 'from cairnmq.cli.main import main; main()' dump"


def shell(command: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=path, capture_output=True, text=True)


def test_head_ends_it_quietly(store: Store) -> None:
    for _ in range(30):
        for _ in range(1000):
            store.put(b"x" * 32)
        store.journal.flush()
    for options in ("", "--json", "--blocks --payload all"):
        result = shell(f"{RUN} {options} . | head -1", store.path)
        assert result.stdout.count("\n") == 1
        assert (result.stderr, result.returncode) == ("", 0)
    store.flip(600)
    result = shell(f"{RUN} . | head -1", store.path)
    assert "corrupt" in result.stdout
    assert (result.stderr, result.returncode) == ("", 1)


def test_a_full_disk_behind_it_is_told(store: Store) -> None:
    result = shell(f"{RUN} . > /dev/full", store.path)
    assert result.stderr == "cairnmq: standard output: No space left on device; the output there is incomplete\n"
    assert result.returncode == 2


def test_queue_names_survive_a_terminal_that_lacks_their_letters(store: Store) -> None:
    store.name_queues("größe")
    store.put_flushed(b"a")
    result = shell(f"PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 LC_ALL=C PYTHONIOENCODING=ascii:strict {RUN} .", store.path)
    assert "queue 1 gr\\xf6\\xdfe" in result.stdout
    assert result.returncode == 0


def test_nothing_is_written(
    store: Store,
    dump: Dump,
    snapshot: Callable[[Path], dict[str, tuple[int, bytes]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files are only opened for reading: in a read-only directory, with an open journal, and with damage."""
    store.name_queues("orders")
    lsns = store.fill(2)
    store.flip(lsns[1] + 100)
    store.flip(store.journal.container_bytes + 20)
    (store.journal_path / "00000009.cairn.new").write_bytes(b"half made")
    for path in (*store.journal_path.iterdir(), store.path / "wiring.sqlite"):
        path.chmod(0o400)
    for path in (store.journal_path, store.path):
        path.chmod(0o500)
    before = snapshot(store.path)
    opened: list[int] = []
    real_open = os.open

    def watched(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if str(path).startswith(str(store.path)):
            opened.append(flags)
        return real_open(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", watched)
    containers = sorted(store.journal_path.glob("*.cairn"))
    for paths in ([store.path], [store.journal_path], containers):
        for options in ([], ["--json", "--payload", "all"], ["--summary"], ["--queue", "orders"]):
            result = dump(*paths, *options)
            assert result.status == 1
            assert "corrupt" in result.out
    monkeypatch.undo()
    assert opened
    assert not [flags for flags in opened if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)]
    assert snapshot(store.path) == before
