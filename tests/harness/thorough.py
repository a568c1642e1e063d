"""The amount of work of tests that could run without end.

With `CAIRN_THOROUGH=1`, as set by CI (`.ci/run`), a run does everything that a change must pass before it is merged.
Otherwise it does a part, drawn in the same way, and skips the tests of `long_tests.txt`, so that `make test` takes less
than ten minutes on two cores. Each amount also has its own variable, and a make target for longer runs.
"""

from __future__ import annotations

import os

THOROUGH = os.environ.get("CAIRN_THOROUGH", "0") not in ("", "0")
EVERY = 1 if THOROUGH else 4
"""The distance between the steps at which tests act: each step in a thorough run, else every fourth one."""


def amount(name: str, thorough: int, part: int) -> int:
    """Return the value of the variable *name*; if it is unset, *thorough* in a thorough run, else *part*."""
    return int(os.environ.get(name) or (thorough if THOROUGH else part))
