"""Tests of the crash tests, which must find at least 90 % of the seeded defects.

The hunt is the beginning of the exploration in `test_power_cut.py` and of the bit rot tests; without a defect it finds
nothing. `test_io_errors.py` finds trust in the page cache and a second try after a failed sync. Defects that no crash
can reveal are in `SURVIVORS`, each with the reason.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from os import environ

import pytest

from tests.harness.recovery import (  # noqa: F401  the rest of the defects
    defects_of_moving,
    defects_of_purging,
    defects_of_recovery,
    defects_of_transactions,
)
from tests.harness.recovery.checker import Broken
from tests.harness.recovery.defects import DEFECTS
from tests.harness.recovery.rot import rot
from tests.harness.recovery.shards import explore
from tests.harness.recovery.workload import KINDS
from tests.harness.store.stores import Disk
from tests.harness.thorough import THOROUGH

from ..store import test_purging, test_transaction_histories, test_transactions

SEED = int(environ.get("CAIRN_SEED", "1"))
SURVIVORS = {
    "the_opening_record_is_not_written": "the mark has the incarnation and the end of the log as well, and is synced "
    "before; the record is for people and for the tools",
    "a_checkpoint_is_believed_although_the_log_lost_a_container": "no crash loses a container; see "
    "`tests/store/test_checkpoint.py`",
    "the_incarnation_is_not_raised": "a block is left over behind a slot's new beginning only if the old one was lost, "
    "which is synced before anything follows it; a failing disk does that, see `tests/journal/test_damage.py`",
    "the_base_of_a_block_is_that_of_its_writing": "the base is only ever raised by what durable records let go, so it "
    "is true as soon as it is raised, whoever says it first, as the mark does; and a reader leaves out the holes that "
    "the base has passed",
    "prepared_operations_hold_nothing": "the first and the last record of a preparation hold its containers, but for "
    "those in the middle of a preparation that takes more than two",
    "the_earlier_of_two_copies_counts": "it was synced before it was copied, so in every state a crash leaves both "
    "hold the same; a failing disk makes the difference",
}

ELSEWHERE: dict[str, Callable[[], None]] = {
    "a_relocated_commit_lists_all_operations": lambda: test_transaction_histories.test_history_agrees_with_model(0),
    "a_dequeue_that_was_never_committed_is_relocated": (
        test_transaction_histories.test_what_was_never_committed_is_not_relocated_as_if_it_were
    ),
    "messages_are_relocated_though_their_queue_was_cut": (
        test_purging.test_a_checkpoint_that_begins_before_a_copy_knows_what_was_cut
    ),
    "a_checkpoint_knows_no_cuts": test_purging.test_a_checkpoint_with_pages_from_before_knows_what_was_cut,
    "a_cut_does_not_hold_its_record": test_purging.test_the_record_stays_until_all_messages_are_looked_at,
    "a_cut_is_forgotten_when_its_messages_were_looked_at": (
        test_purging.test_a_checkpoint_with_pages_from_before_knows_what_was_cut
    ),
    "a_relocated_cut_keeps_nothing": lambda: test_transaction_histories.test_any_history_with_purges(1),
    "a_copied_cut_ends_only_what_is_looked_at_again": (
        lambda: test_transaction_histories.test_any_history_with_purges(41)
    ),
    "what_is_not_prepared_is_in_doubt": lambda: test_transactions.test_what_was_never_prepared_is_rolled_back(Disk()),
}
"""The tests that find the defects that a hunt of this size does not find."""
UNMET = {"what_is_told_behind_the_end_of_the_log_counts_at_once": "longer explorations met it"}
HUNTED = [name for name in DEFECTS if name not in {*SURVIVORS, *ELSEWHERE, *UNMET}]


def hunt(shards: int, states: int) -> None:
    """Run the beginning of an exploration and of the bit rot tests; raise the first violation."""
    try:
        for number in range(shards):
            explore(SEED, number, states)
            rot(SEED, number, "close", states // 5)
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
        f"seeded defects: found {len(found)} of {len(DEFECTS)} there are, in {time.process_time() - begun_s:.0f} s of "
        "CPU, by "
        + ", ".join(f"{invariant} {count}" for invariant, count in sorted(by.items()))
    )


@pytest.mark.parametrize("name", HUNTED[:: 1 if THOROUGH else 6])
def test_a_defect_is_found(name: str, monkeypatch: pytest.MonkeyPatch, found: dict[str, str]) -> None:
    DEFECTS[name](monkeypatch)
    with pytest.raises(Broken) as raised:
        hunt(2 * len(KINDS), 1000)
    found[name] = raised.value.invariant


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_defect_is_found_elsewhere(name: str, monkeypatch: pytest.MonkeyPatch, found: dict[str, str]) -> None:
    DEFECTS[name](monkeypatch)
    with pytest.raises(AssertionError):
        ELSEWHERE[name]()
    found[name] = "another test"


@pytest.mark.parametrize("name", SURVIVORS)
def test_what_no_crash_can_show_is_harmless(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    DEFECTS[name](monkeypatch)
    hunt(len(KINDS), 250)


def test_enough_is_found() -> None:
    assert len(SURVIVORS) + len(UNMET) <= 0.1 * len(DEFECTS)


def test_without_a_defect_nothing_is_found() -> None:
    hunt(len(KINDS), 250)


@pytest.mark.parametrize("name", DEFECTS)
def test_each_defect_changes_what_exists(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    DEFECTS[name](monkeypatch)  # fails if the product has no such name
