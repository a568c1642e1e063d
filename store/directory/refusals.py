"""Checks that refuse a directory that a store must not be opened in."""

from __future__ import annotations

import os

from ...base.disk.real import disk_errors
from ...base.errors import ForeignStore, SharedDirectory
from ...base.private_files import shared_mode

RESTORING = ".restoring"
"""Suffix of a directory in which a store is being restored: it gets its name when it is complete."""


def refuse_unfinished(path: str) -> None:
    """Raises `ForeignStore` if a store would be created where a restore has not been finished."""
    partial = path.rstrip(os.sep) + RESTORING
    if os.path.lexists(partial) and not (os.path.isdir(path) and os.listdir(path)):
        reason = f"a restore into it was not finished: {partial} exists"
        raise ForeignStore(path, reason, f"run the restore again, or remove {partial}")


def refuse_shared(path: str) -> None:
    """Raises `SharedDirectory` if others than its owner can write to the directory: they could replace its files."""
    with disk_errors(path, "stat"):
        mode = shared_mode(path)
    if mode:
        remedy = f"chmod go-w {path}, or name a directory in it, which is created with mode 0700"
        raise SharedDirectory(path, f"its group or all users can write to it (mode {mode:04o})", remedy)
