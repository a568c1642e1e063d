"""The loop of a process beside a broker: it works at intervals, and ends when its standard input is closed.

The broker holds the other end, so that is also when the broker was killed. The process takes no more of the machine
than others leave (nice 19).
"""

from __future__ import annotations

import logging
import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress

from ...base.errors import CairnError
from ...base.private_files import tighten_umask

log = logging.getLogger(__name__)


def is_asked_to_end(wait_s: float = 0) -> bool:
    """Return whether standard input was closed, or is within so long."""
    readable, _, _ = select.select([sys.stdin], [], [], wait_s)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1)


def look_again_and_again(step: Callable[[], object], what: str, wait_s: Callable[[], float]) -> None:
    """Call *step* repeatedly until the end is requested. An error is logged, and the next step follows after *wait_s*.
    """
    said = ""
    while True:
        try:
            step()
            said = ""
        except CairnError as error:
            if str(error) != said:
                log.warning("%s are interrupted: %s", what, error, extra={"event": "broker.helper-waiting"})
            said = str(error)
        if is_asked_to_end(wait_s()):
            return


def run_in_side_process(what: str, run: Callable[[], None]) -> None:
    """*run* as a process beside a broker."""
    tighten_umask()
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    with suppress(OSError):
        os.nice(19)
    try:
        run()
    except CairnError as error:
        print(f"{what}: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
