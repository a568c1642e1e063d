"""Properties of `trace`, `replay`, `as-of --diff` and the views, which agree on any history."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cairnmq.tools.history.arrivals import Arrivals
from cairnmq.tools.history.as_of import QueuesView, difference
from cairnmq.tools.history.trace import lifetime_of
from tests.harness.tools.past import lived, no_progress

FOUND = (Phase.explicit, Phase.reuse, Phase.generate)
"""The phases of Hypothesis without shrinking, which can't simplify a seed."""


@settings(max_examples=12, phases=FOUND)
@given(st.integers(0, 1 << 32), st.integers(5, 40))
def test_trace_and_replay_know_the_places_of_the_view(seed: int, steps: int) -> None:
    with TemporaryDirectory() as path:
        past, journal = lived(path, seed, steps, archives=True)
        history, places = past.history(), journal.places().to_pylist()
        arrived = sorted((one.message_id, one.queue_id) for one in Arrivals(history, 0, history.end_lsn))
        assert arrived == sorted((row["message_id"], row["queue_id"]) for row in places)
        ids = sorted({message_id for message_id, _ in arrived})
        for message_id in past.rng.sample(ids, min(8, len(ids))):
            mine = [row for row in places if row["message_id"] == message_id]
            life = lifetime_of(history, message_id, no_progress)
            assert life.on.get(message_id, set()) == {row["queue_id"] for row in mine if row["end"] is None}
            ends = {event.lsn for event in life.events if event.what in ("dequeued", "deleted", "purged")}
            assert {row["end_lsn"] for row in mine if row["end"] is not None} <= ends


@settings(max_examples=12, phases=FOUND)
@given(st.integers(0, 1 << 32), st.integers(5, 40))
def test_difference_is_that_of_the_model(seed: int, steps: int) -> None:
    with TemporaryDirectory() as path:
        past, _ = lived(path, seed, steps, archives=True)
        history = past.history()
        known = [point for point in past.points if point[0] // history.container_bytes in history.slots]
        (first_lsn, before), (second_lsn, after) = sorted(past.rng.choices(known, k=2), key=lambda point: point[0])
        first, second = (QueuesView(history, lsn, no_progress) for lsn in (first_lsn, second_lsn))
        changes = difference(first, second, lambda queue_id: True, no_progress)
        for queue_id in {*before, *after}:
            were, are = before.get(queue_id, []), after.get(queue_id, [])
            change = changes.get(queue_id)
            assert ([] if change is None else [*change.came]) == [one for one in are if one not in were]
            went = {} if change is None else change.went
            assert list(went) == [one for one in were if one not in are]
            assert all(first_lsn <= one.lsn < second_lsn and one.reason != "" for one in went.values())
        first.close()
        second.close()
