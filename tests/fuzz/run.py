"""Fuzzing: `python -m tests.fuzz.run --runs 1000000 --seed 7 [target ...]`, or `make fuzz RUNS=1000000 SEED=7`.

Each target runs in its own process, which stores each input in a file before trying it, so that the input is available
even if C code crashes or a signal ends an execution that takes too long. A failure is reported with the target, seed
and execution number that reproduce it, and the input is kept in `build/fuzz`.
"""

from __future__ import annotations

import argparse
import logging
import mmap
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

KEPT = Path("build/fuzz")
STUCK_S = 60
"""CPU time after which a signal ends an input, or a run of up to 50 inputs."""
SLOW_S, SLOW_S_PER_BYTE = 0.5, 100e-6
"""CPU time limit of an input, exceeded only if three repetitions do; typical inputs take a thousandth of the limit."""
GROWTH_BYTES = 200 << 20
"""Limit of the growth of a process's memory between the first batch and the end."""
_HEAD_BYTES = 16


class BadInput(AssertionError):
    """An input that takes too much time or memory."""


@dataclass
class Failure:
    """A failed execution of a target."""

    target: str
    seed: int
    execution: int
    data: bytes
    reason: str

    def __str__(self) -> str:
        path = KEPT / f"{self.target}-{self.seed}-{self.execution}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data)
        again = f"python -m tests.fuzz.run --runs {self.execution + 1} --seed {self.seed} {self.target}"
        shown = f"input, {len(self.data)} bytes, in {path}: {self.data[:600]!r}"
        return f"{self.target}: {self.reason}\n{shown}\nagain: {again}"


def fuzz(target: str, runs: int, seed: int) -> Failure | None:
    """Try *runs* inputs in a separate process; return the first failure, or None."""
    KEPT.mkdir(parents=True, exist_ok=True)
    last = KEPT / f"last-{target}-{os.getpid()}"
    last.write_bytes(bytes(1 << 20))
    command = [sys.executable, "-m", "tests.fuzz.run", "--child", str(last), f"--runs={runs}", f"--seed={seed}", target]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if not done.returncode:
            return None
        head = last.read_bytes()
        execution, size = int.from_bytes(head[:8]), int.from_bytes(head[8:_HEAD_BYTES])
        reason = done.stderr.strip()[-6000:]
        if done.returncode < 0:
            reason = f"the process ended by {signal.Signals(-done.returncode).name}\n{reason}"
        return Failure(target, seed, execution, head[_HEAD_BYTES : _HEAD_BYTES + size], reason)
    finally:
        last.unlink(missing_ok=True)


def _child(target_name: str, runs: int, seed: int, last: str) -> None:
    from .mutate import Mutator
    from .targets import TARGETS

    logging.disable()
    target = TARGETS[target_name]
    with open(last, "r+b") as file:
        kept = mmap.mmap(file.fileno(), 0)
    run = target.begin()
    next(run)
    mutator = Mutator(f"{seed} {target_name}")
    size_bytes = 0
    for execution in range(runs):
        if execution and execution % target.batch == 0:
            run.close()
            if execution == target.batch:
                size_bytes = _resident_bytes()
            mutator = Mutator(f"{seed} {target_name} {execution}")
            run = target.begin()
            next(run)
        data = target.make(mutator)
        shown = data[: len(kept) - _HEAD_BYTES]
        kept[: _HEAD_BYTES + len(shown)] = execution.to_bytes(8) + len(shown).to_bytes(8) + shown
        if execution % 50 == 0:
            signal.setitimer(signal.ITIMER_VIRTUAL, STUCK_S)
        begun_s = time.process_time()
        run.send(data)
        if time.process_time() - begun_s > SLOW_S + SLOW_S_PER_BYTE * len(data):
            _check_time(target_name, data)
    run.close()
    if size_bytes and _resident_bytes() > size_bytes + GROWTH_BYTES:
        raise BadInput(f"memory grew from {size_bytes} to {_resident_bytes()} bytes")


def _check_time(target_name: str, data: bytes) -> None:
    """Repeat a slow input; raise `BadInput` if each repetition is slow, which excludes delays by a busy machine."""
    from .targets import TARGETS

    taken_s = []
    for _ in range(3):
        run = TARGETS[target_name].begin()
        next(run)
        begun_s = time.process_time()
        run.send(data)
        taken_s.append(time.process_time() - begun_s)
        run.close()
    if min(taken_s) > SLOW_S + SLOW_S_PER_BYTE * len(data):
        raise BadInput(f"an input of {len(data)} bytes takes {min(taken_s):.2f} s")


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run")
    parser.add_argument("--runs", type=int, default=200_000, help="together, or of the one target that is named")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*")
    asked = parser.parse_args()
    if asked.child:
        try:
            _child(asked.targets[0], asked.runs, asked.seed, asked.child)
        except BaseException:
            traceback.print_exc()
            return 1
        return 0
    from .targets import TARGETS

    failures = 0
    for name in asked.targets or TARGETS:
        runs = asked.runs if len(asked.targets) == 1 else round(asked.runs * TARGETS[name].share)
        begun_s = time.monotonic()
        failure = fuzz(name, runs, asked.seed)
        failures += failure is not None
        print(f"{name}: {runs} runs in {time.monotonic() - begun_s:.1f} s" if failure is None else failure, flush=True)
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
