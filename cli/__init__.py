"""The cairnmq command."""

from __future__ import annotations

import signal

from .early_signals import end_at_once


def start() -> None:
    """Run the command. Ctrl-C ends the process, also while it imports modules, unless SIGINT is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    from .main import main

    main()
