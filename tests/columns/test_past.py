"""Tests of views as of an LSN: they equal the state at that LSN, or missing records are reported."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from cairnmq.analytics.lifetimes.extent import missing_as_of, whole_from
from cairnmq.analytics.scan.selection import Selection
from cairnmq.analytics.views.journal import open_journal
from cairnmq.analytics.views.records import ReadOptions
from cairnmq.tools.history.as_of import QueuesView
from tests.harness.columns.logs import shown_by
from tests.harness.columns.recovered import recovered_as_of
from tests.harness.tools.past import lived, no_progress

FOUND = (Phase.explicit, Phase.reuse, Phase.generate)
"""Phases of Hypothesis without shrinking, as a seed can't be simplified."""


def as_of(lsn: int) -> ReadOptions:
    return ReadOptions(selection=Selection(end_lsn=lsn))


@settings(max_examples=25, phases=FOUND)
@given(st.integers(0, 1 << 32), st.integers(5, 60))
def test_as_of_any_lsn_it_is_right_or_something_is_missing(seed: int, steps: int) -> None:
    with TemporaryDirectory() as path:
        past, journal = lived(path, seed, steps, archives=False)
        begin = whole_from(journal.log)
        for lsn, expected in past.points[:: max(1, len(past.points) // 12)]:
            if missing_as_of(journal.log, lsn) is None:
                assert shown_by(journal, as_of(lsn)) == expected
            else:
                assert lsn < begin
        lsn, expected = past.points[-1]
        assert begin <= journal.log.durable_lsn
        assert missing_as_of(journal.log, journal.log.durable_lsn) is None
        assert shown_by(journal, as_of(lsn)) == expected


@settings(max_examples=15, phases=FOUND)
@given(st.integers(0, 1 << 32), st.integers(5, 40))
def test_with_an_archive_it_is_right_as_of_any_lsn(seed: int, steps: int) -> None:
    with TemporaryDirectory() as path:
        past, journal = lived(path, seed, steps, archives=True)
        there = {piece.slot_lsn // journal.log.container_bytes for piece in journal.log.pieces}
        for lsn, expected in past.points[:: max(1, len(past.points) // 12)]:
            if lsn // journal.log.container_bytes not in there:
                continue  # a slot in which a broker only started and was killed twice is not archived
            assert missing_as_of(journal.log, lsn) is None
            assert shown_by(journal, as_of(lsn)) == expected


@settings(max_examples=15, phases=FOUND)
@given(st.integers(0, 1 << 32), st.integers(5, 40), st.just(0))
@example(527, 36, 738048)  # the next block has the reclaimed range of the records in between
@example(5114, 23, 202560)  # the records of a commit at this LSN were relocated since
def test_within_transactions_it_is_what_recovery_would_make_of_the_log(seed: int, steps: int, also: int) -> None:
    with TemporaryDirectory() as path:
        past, journal = lived(path, seed, steps, archives=True)
        history = past.history()
        lsns = [lsn for batch in journal.records(columns=["lsn"]) for lsn in batch["lsn"].to_pylist()]
        inside = [lsn for lsn in lsns if missing_as_of(journal.log, lsn) is None]
        for lsn in {also, *past.rng.sample(inside, min(12, len(inside)))}.intersection(inside):
            expected = recovered_as_of(history, lsn)
            assert shown_by(journal, as_of(lsn)) == expected
            view = QueuesView(history, lsn, no_progress)
            assert {queue_id: ids.tolist() for queue_id, ids in view.on.items()} == expected
            view.close()


@settings(max_examples=15, phases=FOUND)
@given(st.integers(0, 1 << 32), st.integers(5, 40))
def test_inside_blocks_too_it_is_right_or_something_is_missing(seed: int, steps: int) -> None:
    with TemporaryDirectory() as path:
        past, archived = lived(path, seed, steps, archives=True)
        history, journal = past.history(), open_journal(archived.log.place)
        lsns = [lsn for batch in archived.records(columns=["lsn"]) for lsn in batch["lsn"].to_pylist()]
        there = [lsn for lsn in lsns if missing_as_of(journal.log, lsn) is None]
        for lsn in past.rng.sample(there, min(20, len(there))):
            assert shown_by(journal, as_of(lsn)) == recovered_as_of(history, lsn)
