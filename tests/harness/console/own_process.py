"""A console in its own process, as `cairnmq console` starts it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness.process import CAIRNMQ, DEADLINE_S


@contextmanager
def console_process(*options: str) -> Iterator[int]:
    """Run a console, and yield its port."""
    command = [CAIRNMQ, "console", "--http-port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            match = re.search(r"web console at https?://127\.0\.0\.1:(\d+)/", process.stdout.readline())
            assert match
            yield int(match[1])
        finally:
            process.terminate()
            assert process.wait(DEADLINE_S) in (0, -15)
