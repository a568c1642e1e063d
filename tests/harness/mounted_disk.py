"""Small file systems in memory, for tests of a full disk."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cairnmq.tools.lab import kernel


@contextmanager
def mounted_disk(place: Path, options: str) -> Iterator[Path]:
    """Mount a file system at *place*, a new directory. Skips the test if this user cannot mount.

    *options*: mount options, such as `size=24m`.
    """
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("a small file system takes root to mount")
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def privately_mounted_disk(place: Path, size: int | str) -> Iterator[Path]:
    """Mount a file system at *place*, a new directory, in the mount namespace of this thread."""
    place.mkdir()
    kernel.mount("tmpfs", str(place), "tmpfs", 0, f"size={size}")
    try:
        yield place
    finally:
        kernel.unmount(str(place))
