"""The handler of Ctrl-C before the command is imported. This module imports only what is quick to import."""

from __future__ import annotations

import os
from contextlib import suppress


def end_at_once(number: int, *_: object) -> None:
    """End the process, whose modules are being imported: what they import could catch or print an exception."""
    with suppress(OSError):  # standard error may be closed
        os.write(2, b"cairnmq: interrupted\n")
    os._exit(128 + number)
