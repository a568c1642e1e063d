"""A process that answers one question about a store: a JSON object on standard input, and one on standard output.

A question may read the whole log. Therefore it has a process of its own, with a low priority and limits of CPU time and
memory, which the console ends if it takes too long.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from contextlib import suppress
from typing import Any

from ...base.errors import CairnError, IncompleteResult
from .questions import QUESTIONS

CPU_S = 60
NICE = 10
"""A tenth of a busy core remains for a question; with 19 an operator waited for more than 30 s."""
DATA_BYTES = 2 << 30


def main() -> None:
    """Answer the question."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
        os.nice(NICE)
    asked = json.load(sys.stdin)
    found: Any
    try:
        found = {"found": QUESTIONS[asked["question"]](asked)}
    except IncompleteResult as error:
        found = {"status": 404, "text": str(error)}
    except CairnError as error:
        found = {"status": 409, "text": str(error)}
    json.dump(found, sys.stdout, default=str)


if __name__ == "__main__":
    main()
