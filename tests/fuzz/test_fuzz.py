"""Malformed input of all kinds, 60,000 inputs in a thorough run (security A1, A2, A8, A9, A16; see `tests.fuzz.run`).

Each test process uses the same seed, so a failure is reproducible on each machine. `make fuzz` tries other inputs.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness.thorough import amount

from .run import fuzz
from .targets import TARGETS

RUNS = amount("CAIRN_FUZZ_RUNS", 60_000, 1_500)
SEED = int(os.environ.get("CAIRN_FUZZ_SEED", "1"))
FOUND = Path(__file__).parent / "found"


def test_shares_make_a_whole() -> None:
    assert sum(target.share for target in TARGETS.values()) == pytest.approx(1)


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_does_what_none_may(name: str) -> None:
    failure = fuzz(name, round(RUNS * TARGETS[name].share), SEED)
    assert failure is None, str(failure)


@pytest.mark.parametrize("path", sorted(FOUND.iterdir()), ids=lambda path: path.name)
def test_what_was_found_once_stays_mended(path: Path) -> None:
    """Inputs that once failed no longer fail; each file name begins with the target."""
    target = TARGETS[path.name.partition("-")[0]]
    run = target.begin()
    next(run)
    run.send(path.read_bytes())
    run.close()
