"""The standard streams of the process: descriptors that are open, and one line for an error of standard output."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from ...base.errors import CairnError

INCOMPLETE = "the output there is incomplete"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def open_missing_streams() -> None:
    """Open the null device for standard streams that are closed (`>&-`).

    Otherwise a file or socket gets their descriptor, and messages for standard error are written into it. Call it in
    the main thread, before anything is opened.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def discard_output() -> None:
    """Discard the buffered output, which must not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def written_output() -> Iterator[None]:
    """Flush standard output at the end of the block. Raises `CairnError` if the block or the flush finds it full."""
    try:
        try:
            yield
        except (click.exceptions.Exit, SystemExit):
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            raise
        discard_output()
        raise CairnError("standard output", os.strerror(error.errno), INCOMPLETE) from error
