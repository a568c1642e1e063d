"""How much a run does of what could go on for ever.

With `CAIRN_THOROUGH=1`, as CI has it (`.ci/run`), all that a change must have stood up to before it is taken. Without
it a part, drawn in the same way, and without the tests of `long_tests.txt`, so that `make test` takes a developer less
than ten minutes on two cores. Each amount has a variable of its own, too, and a make target for longer runs.
"""

from __future__ import annotations

import os

THOROUGH = os.environ.get("CAIRN_THOROUGH", "0") not in ("", "0")
EVERY = 1 if THOROUGH else 4
"""Of steps at which something is to happen, so many are gone on by: each of them, or a part."""


def amount(name: str, thorough: int, part: int) -> int:
    """What the variable *name* says; if it says nothing, what a thorough run does, or the part of others."""
    return int(os.environ.get(name) or (thorough if THOROUGH else part))
