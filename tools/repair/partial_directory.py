"""Directories that have their name only when they are complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Set

from ...base.disk.file_lock import FileLock
from ...base.disk.real import RealDirectory, disk_errors
from ...base.errors import CairnError


class PartialDirectory:
    """A directory under construction, with a temporary name; removed at the end unless it is completed.

    One process at a time constructs it. The next one removes what a killed process left.
    """

    def __init__(self, target: str, suffix: str, own_names: Set[str], what: str) -> None:
        """Make *target*, which does not exist or is empty, as *target* + *suffix*.

        *own_names* are the names that one which was killed may have left in it. *what* is made, for errors.
        """
        self._target = os.path.realpath(target)
        self.path = self._target + suffix
        self._own_names = own_names
        self._what = what
        self._finished = False

    def __enter__(self) -> PartialDirectory:
        self.directory = RealDirectory(self.path, create=True)
        try:
            self._lock = FileLock(self.path, flags=os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            reason = f"another {self._what} is being made there"
            raise CairnError(self.path, reason, "name another directory") from error
        strangers = set(self.directory.names()) - self._own_names
        if strangers:
            self._lock.close()
            reason = f"in the way, and not a {self._what} (it holds {min(strangers)!r})"
            raise CairnError(self.path, reason, "move it away")
        for name in self.directory.names():
            place = os.path.join(self.path, name)
            shutil.rmtree(place) if os.path.isdir(place) else os.unlink(place)
        return self

    def finish(self) -> None:
        """Give the directory its name, durably. All files in it are synced."""
        self.directory.sync()
        parent = RealDirectory(os.path.dirname(self._target))
        parent.rename(os.path.basename(self.path), os.path.basename(self._target))
        self._finished = True
        parent.sync()

    def __exit__(self, *_: object) -> None:
        if not self._finished:
            shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def check_new(target: str, building: str, left: str) -> None:
    """Raises `CairnError` if *target*, or the place where it is built, exists. *left*: the origin of the latter."""
    for place, reason in ((target, "it exists already"), (building, left)):
        if os.path.lexists(place):
            raise CairnError(place, reason, "name another directory, or remove it")


def move_complete(building: str, target: str) -> None:
    """Give the complete directory *building* its name, durably."""
    with disk_errors(building, f"rename to {target}"):
        os.rename(building, target)
    RealDirectory(os.path.dirname(os.path.abspath(target))).sync()
