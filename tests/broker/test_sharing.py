"""Tests of the share of the disk that long messages get beside small messages (F27)."""

from __future__ import annotations

from random import Random

import pytest

from cairnmq.amqp.ports import MORE
from cairnmq.broker.kernel import commit_queue as line
from cairnmq.broker.kernel.fair_share import ALONE_BYTES, LEAST_BYTES, UNKNOWN_BYTES, fair_bytes
from tests.harness.broker.world import FakeTerminal, World, message


def flushes(sync_s: float, byte_s: float, number: int = 64) -> list[tuple[int, float]]:
    """Return sizes and durations of flushes of a disk with these costs; up to a tenth of them are delayed by 0.1 s."""
    random = Random(1)
    sizes = [random.choice((512, 2048, 65_000, 200_000)) for _ in range(number)]
    late = {random.randrange(number) for _ in range(number // 10)}
    return [(size, sync_s + byte_s * size + 0.1 * (at in late)) for at, size in enumerate(sizes)]


@pytest.mark.parametrize("sync_s", [0.0002, 0.001, 0.008])
def test_as_much_as_takes_as_long_as_a_sync(sync_s: float) -> None:  # F27
    for mb_per_s in (100, 200, 400):
        byte_s = 1e-6 / mb_per_s
        wanted = min(ALONE_BYTES, max(LEAST_BYTES, sync_s / byte_s))
        assert fair_bytes(flushes(sync_s, byte_s)) == pytest.approx(wanted, rel=0.2)


def test_what_the_flushes_do_not_tell_is_not_guessed() -> None:
    assert fair_bytes([]) == UNKNOWN_BYTES
    assert fair_bytes(flushes(0.001, 1e-8)[:10], 12345) == 12345
    assert fair_bytes([(65_000, 0.002)] * 64, 12345) == 12345, "all alike"


def test_a_disk_that_others_keep_busy_is_not_left_idle() -> None:
    """If the duration of a flush does not depend on its size, smaller flushes would only be slower."""
    assert fair_bytes([(512, 0.02), (100_000, 0.019)] * 32) == ALONE_BYTES
    assert fair_bytes([(512, 0.02), (100_000, 0.02)] * 32) == ALONE_BYTES


class Turns:
    """A sender in the middle of a long message, and another sender of small messages."""

    def __init__(self) -> None:
        self.world = World(1 << 30)
        self.long, self.small = self.world.open(to_client=False), self.world.open(to_client=False)
        self.relieved = 0
        self.send(self.long, 1, message(1, 70_000, True), MORE)

    def send(self, terminal: FakeTerminal, number: int, data: bytes, flags: int = 0) -> None:
        self.world.send(terminal, (number, data, flags))

    def is_held_up_by(self, size_bytes: int) -> bool:
        """Return whether the worker must wait after a turn that received *size_bytes* of the long message."""
        found: list[bool] = []

        def turn() -> None:
            self.long.driver.receive([(1, bytes(64 << 10), MORE)] * (size_bytes >> 16))
            found.append(self.world.broker.drivers.held_up(self._relieve))

        before = self.relieved
        self.world.do(turn)
        assert self.relieved == before + found[0], "who waits is told once it is on the disk"
        return found[0]

    def _relieve(self) -> None:
        self.relieved += 1


def test_a_long_message_gets_its_share_beside_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:  # F27
    monkeypatch.setattr(line, "RECENT_BYTES", 4 << 20)
    turns = Turns()
    assert not turns.is_held_up_by(ALONE_BYTES // 2)
    assert turns.is_held_up_by(ALONE_BYTES * 2)
    turns.send(turns.small, 2, message(2, 256, True))
    assert turns.is_held_up_by(ALONE_BYTES // 2)
    assert not turns.is_held_up_by(LEAST_BYTES // 2)
    for _ in range(8):
        turns.is_held_up_by(ALONE_BYTES)
    assert not turns.is_held_up_by(ALONE_BYTES // 2), "nobody has waited for long"
    turns.send(turns.long, 1, b"")
    assert turns.long.confirmed
    turns.send(turns.long, 1, message(3, 70_000, True), MORE)
    assert not turns.is_held_up_by(ALONE_BYTES // 2), "its own end is nobody else's wait"
