"""The exit statuses of the commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...base.errors import CairnError, InvalidOption, MissingPath

FOUND, UNREADABLE = 1, 2


def error_status(error: CairnError) -> int:
    """Return the exit status for an error that ends a command: 2 for an invalid argument or option, else 1."""
    return UNREADABLE if isinstance(error, InvalidOption | MissingPath) else FOUND


@contextmanager
def invalid_options() -> Iterator[None]:
    """Raise errors of the block as `InvalidOption`: all of them are caused by values of options."""
    try:
        yield
    except (InvalidOption, MissingPath):
        raise
    except CairnError as error:
        raise InvalidOption(error.place, error.reason, error.remedy) from error
