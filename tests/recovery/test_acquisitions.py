"""Tests that delivery-tracking records between all others do not change the state that recovery finds."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from cairnmq.base.errors import ForeignStore
from cairnmq.recovery import replay
from cairnmq.store.journaled.acquire_records import taker
from tests.harness.recovery.shards import explore
from tests.harness.recovery.tally import Tally
from tests.harness.recovery.workload import KINDS
from tests.harness.recovery.world import World
from tests.harness.thorough import amount

STATES = amount("CAIRN_NOTED_STATES", 1_000, 100)
"""The number of states to explore in a run of each kind."""


class Noting:
    """A patch of worlds that records acquisitions of a consumer before each other operation."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.written = 0
        self._random = random.Random(1)
        for name in ("put", "take", "purge", "kick", "close"):
            self._before(patch, name, getattr(World, name))

    def _before(self, patch: pytest.MonkeyPatch, name: str, call: Callable[..., object]) -> None:
        def noted(world: World, *arguments: object) -> object:
            self._note(world)
            return call(world, *arguments)

        patch.setattr(World, name, noted)

    def _note(self, world: World) -> None:
        store, draw = world.store, self._random
        for queue_id in sorted(world.history.queues) if store is not None else ():
            ids = world.on(queue_id)[: draw.randrange(4)]
            if store is not None and ids and draw.random() < 0.5:
                store.note_acquired(queue_id, taker("client", "l" * draw.randrange(300)), ids, world.clock.wall_us())
                self.written += 1
                if draw.random() < 0.2:
                    store.write_notes()


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_every_state_that_crashes_may_leave(
    number: int, monkeypatch: pytest.MonkeyPatch, tell: Callable[[str], None]
) -> None:
    noting = Noting(monkeypatch)
    tally: Tally = explore(1, number, STATES)
    tell(f"{list(KINDS)[number]}: {tally.states} states, {noting.written} notes")
    assert tally.states >= STATES
    assert noting.written > 20


def test_that_finds_a_recovery_which_does_not_know_them(monkeypatch: pytest.MonkeyPatch) -> None:
    Noting(monkeypatch)
    monkeypatch.setattr(replay, "_KNOWN", bytes(kind for kind in replay._KNOWN if kind < 64))
    with pytest.raises(ForeignStore, match="a record of type 64, which this program does not know"):
        explore(1, 0, STATES)
