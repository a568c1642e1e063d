"""Tests of properties that only a directory of the operating system has."""

from __future__ import annotations

import os
from errno import EIO
from pathlib import Path

import pytest

from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.errors import DiskError


def test_a_disk_that_fails_once_a_file_is_open_leaves_it_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file whose creation fails after it was opened is closed, so that the file system can be unmounted."""

    def fails(fd: int) -> os.stat_result:
        raise OSError(EIO, os.strerror(EIO))

    directory = RealDirectory(str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", fails)
        with pytest.raises(DiskError):
            directory.create("a")
    opened = {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    assert str(tmp_path / "a") not in opened
