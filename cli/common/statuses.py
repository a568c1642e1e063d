"""The exit statuses of the commands."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ...base.errors import CairnError, InvalidOption, MissingPath

FOUND, UNREADABLE = 1, 2
PASSING = {
    errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ETIMEDOUT
}  # fmt: skip
"""Errors of the system that may pass without a change of the configuration."""


def error_status(error: CairnError) -> int:
    """Return the exit status for an error that ends a command: 2 for an invalid argument or option, else 1."""
    return UNREADABLE if isinstance(error, InvalidOption | MissingPath) else FOUND


@contextmanager
def invalid_options() -> Iterator[None]:
    """Raise errors of the block as `InvalidOption`, as values of options cause them.

    Errors of the system that may pass, such as a full disk, are raised as they are: a service is then started again.
    """
    try:
        yield
    except (InvalidOption, MissingPath):
        raise
    except CairnError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in PASSING:
            raise
        raise InvalidOption(error.place, error.reason, error.remedy) from error
