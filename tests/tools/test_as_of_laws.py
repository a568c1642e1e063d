"""Properties of views as of any LSN: they equal a model of the traffic, whatever was reclaimed from the log since."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cairnmq.analytics.lifetimes.extent import whole_from
from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.errors import CairnError
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.recovery.recover import recover
from cairnmq.tools.history.as_of import QueuesView
from cairnmq.tools.history.history import find_history
from tests.harness.columns.logs import lay_out
from tests.harness.recovery.world import OPTIONS, MemoryWiring
from tests.harness.store.stores import NOW_US, queue
from tests.harness.tools.past import Past, no_progress

FOUND = (Phase.explicit, Phase.reuse, Phase.generate)
"""The phases of Hypothesis without shrinking, which can't simplify a seed."""


@settings(max_examples=25, phases=FOUND)
@given(st.integers(0, 1 << 32), st.integers(5, 30))
def test_as_of_any_lsn_is_what_the_model_says(seed: int, steps: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        past = Past(f"{place}/archive", seed)
        for _ in range(steps):
            past.step()
        history = past.history()
        for lsn, expected in past.rng.sample(past.points, min(8, len(past.points))):
            if lsn // history.container_bytes not in history.slots:
                continue  # a slot in which a broker only started, and was killed twice, is not archived
            view = QueuesView(history, lsn, no_progress)
            assert {one: ids.tolist() for one, ids in view.on.items()} == expected
            assert view.is_complete
            for message_id in {one for ids in expected.values() for one in ids} & past.contents.keys():
                assert view.content(message_id) == past.contents[message_id]
            view.close()


@settings(max_examples=15, phases=FOUND)
@given(st.integers(0, 1 << 32), st.integers(5, 30))
def test_without_an_archive_it_is_right_or_refused(seed: int, steps: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        past = Past(f"{place}/archive", seed, archives=False)
        for _ in range(steps):
            past.step()
        history = past.history()
        begin = whole_from(history.log)
        for lsn, expected in past.points[:: max(1, len(past.points) // 8)]:
            try:
                view = QueuesView(history, lsn, no_progress)
            except CairnError as refusal:
                said = str(refusal)
                assert (lsn < begin, "history is complete from LSN" in said or "begins at" in said) == (True, True)
                continue
            assert view.is_complete
            assert {one: ids.tolist() for one, ids in view.on.items()} == expected


def test_inside_a_block_and_a_transaction() -> None:
    with tempfile.TemporaryDirectory() as place:
        files, wiring = MemoryDirectory(), MemoryWiring()
        store, _ = recover(files, wiring, ManualClock(), OPTIONS)
        store.run_inline(store.became_durable)
        on = queue(store)
        ids = [store.put(on, b"m%d" % n, NOW_US)[0] for n in range(5)]  # one block
        tx = store.transactions.begin(NOW_US)
        tx.dequeue(ids[0], on, NOW_US)
        tx.put(on, b"new", NOW_US)
        end = tx.commit(NOW_US)
        store.kick()
        history = find_history([RealDirectory(f"{lay_out(files, Path(place))}/journal")])
        for number, lsn in enumerate(ids):
            view = QueuesView(history, lsn, no_progress)
            assert list(view.on.get(on, [])) == ids[:number]
        at_commit = QueuesView(history, end, no_progress)  # before the commit record, so without the transaction
        assert list(at_commit.on[on]) == ids
        behind = QueuesView(history, end + 1, no_progress)
        assert list(behind.on[on]) == [*ids[1:], *tx.message_ids]
