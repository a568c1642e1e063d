"""A file that one process has to itself, for as long as that process lives."""

from __future__ import annotations

import fcntl
import os

from ..private_files import open_private
from .real import disk_error, disk_errors


def lock_file(path: str) -> int | None:
    """The descriptor of the file at *path*, locked until it is closed; None if another process has it.

    The file is made if it is not there, and stays. Raises `DiskError`. Any thread.
    """
    with disk_errors(path, "open"):
        fd = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError as error:
        os.close(fd)
        raise disk_error(path, "lock", error) from error
    return fd
