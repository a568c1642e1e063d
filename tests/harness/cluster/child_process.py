"""Runs a function in a forked process."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_child(what: Callable[[], None]) -> str:
    """Run *what* in a forked process, which may drop privileges; return its exception as text, or "nothing"."""
    there, here = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            what()
            said = "nothing"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(here, said.encode())
        os._exit(0)
    os.close(here)
    os.waitpid(pid, 0)
    with open(there, "rb") as pipe:
        return pipe.read().decode()
