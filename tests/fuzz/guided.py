"""Coverage-guided fuzzing of the targets with atheris: `make guided TARGET=message SECONDS=600`.

Guided fuzzing tries a quarter as many inputs per second as `tests.fuzz.run`, but reaches code that random changes do
not; it is meant for long runs and is not part of the tests. New inputs are kept in `build/guided` for later runs.
libFuzzer stores a failing input as `crash-...`; `python -m tests.fuzz.guided message crash-...` repeats that input.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["cairnmq"]):
    from .targets import TARGETS

from .mutate import Mutator

SEEDS = 300


def main() -> None:
    name, *options = sys.argv[1:]
    target = TARGETS[name]
    known = Path("build/guided") / name
    if not known.exists():
        known.mkdir(parents=True)
        mutator = Mutator(name)
        for number in range(SEEDS):
            (known / f"seed-{number}").write_bytes(target.make(mutator))
    run = target.begin()
    next(run)
    count = 0

    def try_one(data: bytes) -> None:
        nonlocal run, count
        count += 1
        if count % target.batch == 0:
            run.close()
            run = target.begin()
            next(run)
        run.send(data)

    inputs = [] if any(not option.startswith("-") for option in options) else [str(known)]
    atheris.Setup([sys.argv[0], *options, *inputs], try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
