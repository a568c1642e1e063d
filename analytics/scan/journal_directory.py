"""The journal directory that a path names: itself, or that of its store."""

from __future__ import annotations

import errno
import os

from ...base.disk.real import RealDirectory
from ...base.errors import ForeignStore, MissingStore
from ...base.remote_paths import refuse_remote
from ...journal.files.archive import archived_lsn
from ...journal.format import container
from ...journal.format import log_mark as mark
from ...store.contract.layout import JOURNAL_NAME

WHAT_TO_NAME = "name a store directory, its journal directory, an archive, or container files"


_REASONS = {errno.ENOENT: "no such directory", errno.ENOTDIR: "not a directory"}


def need_directory(path: str, what_to_name: str = WHAT_TO_NAME) -> None:
    """Raise `MissingStore` if *path* does not exist, or is not a directory; `InvalidOption` for a URL."""
    refuse_remote(path)
    try:
        os.stat(os.path.join(path, ""))
    except OSError as error:
        if error.errno in _REASONS:  # other errors are those of its reader
            raise MissingStore(path, _REASONS[error.errno], what_to_name) from None


def _need_journal(path: str) -> None:
    from ...store.directory.kind import need_journal  # it imports SQL, and readers of given pieces need none

    need_journal(path)


def journal_of(path: str) -> str:
    """The directory of the journal that *path* names, or that of its store. Raises `CairnError` for what is neither."""
    need_directory(path)
    names = RealDirectory(path).names()
    if mark.NAME in names or any(container.file_number(name) is not None for name in names):
        return path
    _need_journal(path)
    if JOURNAL_NAME not in names:
        raise ForeignStore(path, "no journal in it", "name a store directory")
    return os.path.join(path, JOURNAL_NAME)


def directory_of_containers(path: str, what_to_name: str = WHAT_TO_NAME) -> RealDirectory:
    """Return the directory of containers at *path*, or of the store there. Raises `ForeignStore` for other paths.

    An archive is such a directory, too. *what_to_name*: the remedy in errors.
    """
    need_directory(path, what_to_name)
    directory = RealDirectory(path)
    if _holds_containers(directory.names()):
        return directory
    inner = os.path.join(path, JOURNAL_NAME)
    _need_journal(path)
    if not os.path.isdir(inner):
        empty = not directory.names()
        raise ForeignStore(path, "the directory is empty" if empty else "no journal in it", what_to_name)
    directory = RealDirectory(inner)
    if not _holds_containers(directory.names()):
        raise ForeignStore(inner, f"no journal in it: {mark.NAME} and containers are missing", what_to_name)
    return directory


def _holds_containers(names: list[str]) -> bool:
    return mark.NAME in names or any(is_container(name) for name in names)


def is_container(name: str) -> bool:
    """Return whether a file of that name is a container of a journal or of an archive."""
    return container.file_number(name) is not None or archived_lsn(name) is not None


def containers_in(directory: RealDirectory) -> list[str]:
    """The paths of the containers in *directory*."""
    return [os.path.join(directory.path, name) for name in directory.names() if is_container(name)]
