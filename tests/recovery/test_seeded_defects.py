"""A crash test must be able to fail: defects are put in on purpose, and at least 90 % are found.

The hunt is the beginning of the exploration in `test_power_cut.py` and of the bit rot; without a defect it finds
nothing. Trust in the page cache and a second try after a failed sync are found by `test_io_errors.py`. Those that no
crash can show are in `SURVIVORS`, each with the reason.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from .checker import Broken
from .defects import DEFECTS
from .rot import rot
from .shards import explore

SURVIVORS = {
    "the_opening_record_is_not_written": "the mark has the incarnation and the end of the log as well, and is synced "
    "before; the record is for people and for the tools",
    "the_incarnation_is_not_raised": "a block is left over behind a slot's new beginning only if the old one was lost, "
    "which is synced before anything follows it; a failing disk does that, see `tests/journal/test_damage.py`",
}


def hunt(shards: int, each: int) -> None:
    """The beginning of an exploration, and of the bit rot. The first thing that is wrong is raised."""
    try:
        for number in range(shards):
            explore(1, number, each)
        for number in range(shards // 2):
            rot(1, number, "close", each)
    except Broken:
        raise
    except Exception as error:
        raise Broken("I10", f"the store does not work at all: {type(error).__name__}: {error}") from error


@pytest.fixture(scope="module")
def found(tell: Callable[[str], None]) -> Iterator[dict[str, str]]:
    begun_s = time.process_time()
    found: dict[str, str] = {}
    yield found
    by = Counter(found.values())
    tell(
        f"seeded defects: {len(found)} of {len(DEFECTS)} found in {time.process_time() - begun_s:.0f} s of CPU, by "
        + ", ".join(f"{invariant} {count}" for invariant, count in sorted(by.items()))
    )


@pytest.mark.parametrize("name", [name for name in DEFECTS if name not in SURVIVORS])
def test_a_defect_is_found(name: str, monkeypatch: pytest.MonkeyPatch, found: dict[str, str]) -> None:
    DEFECTS[name](monkeypatch)
    with pytest.raises(Broken) as raised:
        hunt(10, 1500)
    found[name] = raised.value.invariant


@pytest.mark.parametrize("name", SURVIVORS)
def test_what_no_crash_can_show_is_harmless(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    DEFECTS[name](monkeypatch)
    hunt(4, 1500)


def test_enough_is_found() -> None:
    assert len(SURVIVORS) <= len(DEFECTS) / 10


def test_without_a_defect_nothing_is_found() -> None:
    hunt(2, 1500)
