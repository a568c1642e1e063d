"""A process that answers one question about a store: a JSON object on standard input, and one on standard output.

Lines with its progress come before the answer.

A question may read the whole log. Therefore it has a process of its own, with a low priority and limits of CPU time and
memory, which the console ends if it takes too long. If the memory of the machine runs out, the kernel ends this process
before others.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...base.errors import CairnError, IncompleteResult
from .questions import QUESTIONS

CPU_S = 120
NICE = 10
"""A tenth of a busy core remains for a question; with 19 an operator waited for more than 30 s."""
FIRST_TO_END = "1000"
"""The adjustment of a process that the kernel ends first."""


def main() -> None:
    """Answer the question."""
    asked = json.load(sys.stdin)
    most_bytes = asked["most_bytes"]
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_END)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
        os.nice(NICE)
    found: Any
    try:
        found = {"found": QUESTIONS[asked["question"]](asked)}
    except MemoryError:
        text = f"the history needs more than {most_bytes >> 20} MiB of memory; name a queue or a shorter range"
        found = {"status": 507, "text": text}
    except IncompleteResult as error:
        found = {"status": 404, "text": str(error)}
    except CairnError as error:
        found = {"status": 409, "text": str(error)}
    json.dump(found, sys.stdout, default=str)


if __name__ == "__main__":
    main()
