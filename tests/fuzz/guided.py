"""The same targets, guided by coverage: `make guided TARGET=message SECONDS=600` has atheris look for new paths.

A quarter as many inputs a second as `tests.fuzz.run`, and it finds its way into what changes by chance do not reach; so
this is for long runs, and not among the tests. What it has found new is kept in `build/guided`, and it goes on from
there. An input that fails is left by libFuzzer as `crash-...`; `python -m tests.fuzz.guided message crash-...` tries it
again.
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
