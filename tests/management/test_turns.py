"""Tests that management requests of connections take turns and occupy bounded memory (attack 61)."""

from __future__ import annotations

import pytest

from cairnmq.broker.scheduling.background import SLICE_S
from cairnmq.management.protocol.turns import (
    FREE_WAITING_BYTES,
    MOST_REQUEST_BYTES,
    MOST_REQUESTS,
    MOST_RUNNING,
    MOST_WAITING_BYTES,
    MOST_WAITING_OF_ALL_BYTES,
    Turns,
)
from tests.harness.broker.background_steps import BackgroundSteps


class Core(BackgroundSteps):
    """A simulated core with management requests of users and steps in which they begin."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns(self.background)
        self.begun: list[str] = []

    def ask(self, user: str, size_bytes: int = 100, *, takes_s: float = SLICE_S) -> str:
        """Submit a request of *user*'s connection; return the reason if it was refused."""
        requester = self.turns.of(user, user)
        reason = requester.refusal(size_bytes)

        def begin() -> None:
            self.begun.append(user)
            self.now_s += takes_s

        if not reason:
            requester.submit(size_bytes, begin)
        return reason


@pytest.fixture
def core() -> Core:
    return Core()


def test_one_request_is_begun_at_once(core: Core) -> None:
    assert core.ask("anna") == ""
    assert core.begun == ["anna"]


def test_connections_take_turns(core: Core) -> None:
    """If a step has time for one request, a second connection does not wait for all requests of the first."""
    for _ in range(6):
        core.ask("evil")
    core.ask("anna")
    for _ in range(4):
        core.step()
    assert core.begun.index("anna") <= 2
    assert len(core.begun) <= 6


def test_requests_without_an_answer_are_few(core: Core) -> None:
    for _ in range(3 * MOST_RUNNING):
        assert core.ask("anna", takes_s=0) == ""
    for _ in range(100):
        core.step()
    assert len(core.begun) == MOST_RUNNING
    core.turns.of("anna", "anna").ended()
    core.step()
    assert len(core.begun) == MOST_RUNNING + 1


@pytest.mark.parametrize(("size_bytes", "most"), [(1, MOST_REQUESTS), (64 << 10, MOST_REQUEST_BYTES // (64 << 10))])
def test_waiting_requests_are_bounded(core: Core, size_bytes: int, most: int) -> None:
    taken = sum(core.ask("evil", size_bytes) == "" for _ in range(2 * most))
    assert taken <= most + MOST_RUNNING
    assert "wait" in core.ask("evil", size_bytes)
    assert core.ask("anna", size_bytes) == ""


def test_waiting_responses_are_bounded(core: Core) -> None:
    """The limits apply per connection and in total; a connection with few waiting responses is not refused."""
    requester = core.turns.of("evil", "evil")
    requester.note_waiting(MOST_WAITING_BYTES + 1)
    assert "credit" in core.ask("evil")
    assert core.ask("anna") == ""
    others = [core.turns.of(f"other-{number}", "other") for number in range(10)]
    for other in others:
        other.note_waiting(MOST_WAITING_BYTES)
    assert core.turns.waiting_bytes > MOST_WAITING_OF_ALL_BYTES
    assert "credit" in core.ask("other-3")
    core.turns.of("anna", "anna").note_waiting(FREE_WAITING_BYTES)
    assert core.ask("anna") == ""


def test_requests_go_on_when_responses_were_read(core: Core) -> None:
    requester = core.turns.of("anna", "anna")
    for _ in range(2):
        core.ask("anna")
    requester.note_waiting(MOST_WAITING_BYTES + 1)
    core.step()
    assert core.begun == ["anna"]
    requester.note_waiting(-MOST_WAITING_BYTES)
    core.step()
    core.step()
    assert core.begun == ["anna", "anna"]


def test_nothing_is_kept_of_a_connection_that_asks_nothing(core: Core) -> None:
    core.ask("anna")
    requester = core.turns.of("anna", "anna")
    requester.note_waiting(10)
    requester.ended()
    assert core.turns._requesters
    requester.note_waiting(-10)
    assert not core.turns._requesters
