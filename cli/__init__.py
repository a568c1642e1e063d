"""The cairnmq command."""

from __future__ import annotations

import os
import signal


def end_at_once(number: int, *_: object) -> None:
    """End the process, whose modules are being imported: what they import could catch or print an exception."""
    os.write(2, b"cairnmq: interrupted\n")
    os._exit(128 + number)


def start() -> None:
    """Run the command. Ctrl-C ends the process, also while it imports modules, unless SIGINT is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    from .main import main

    main()
