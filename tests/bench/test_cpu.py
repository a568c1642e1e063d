"""Tests of the CPU clock of the Spark benchmarks."""

from __future__ import annotations

import subprocess
import sys

from bench.cpu import CpuClock

_BURNS = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as Spark's daemon does: nobody gets what its children used
if os.fork() == 0:
    while time.process_time() < 2:
        pass
    os._exit(0)
try:
    os.wait()  # until there is no child any more
except ChildProcessError:
    print("over", flush=True)
input()
"""


def test_a_process_that_ended_unwaited_for_is_counted() -> None:
    """The CPU time of an ended process that its parent did not wait for counts, also after the end of the parent."""
    with CpuClock() as clock:
        before_s = clock.cpu_s()
        with subprocess.Popen([sys.executable, "-c", _BURNS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"over\n"
            found_s = clock.cpu_s() - before_s
            parent.communicate(b"\n")
        assert found_s > 0.5
        assert clock.cpu_s() - before_s > found_s - 0.1  # a descendant's time is in whole ticks
