"""Tests of slices of background work: the turns of users, and jobs that take longer than a slice (W2)."""

from __future__ import annotations

from functools import partial

import pytest

from cairnmq.broker.scheduling.background import MOST_DEBT_S, SLICE_S
from tests.harness.broker.background_steps import BackgroundSteps


class Steps(BackgroundSteps):
    """Background steps, with users whose jobs have durations set by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def repeat(self, user: str, seconds: float) -> None:
        """Defer a job of *user* that takes *seconds* and defers itself again."""
        self.background.put_off(partial(self._job, user, seconds), user)

    def _job(self, user: str, seconds: float) -> None:
        self.now_s += seconds
        self.done.append(user)
        self.repeat(user, seconds)


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.mark.parametrize("slices", [1, 2, 5, 12])
def test_a_user_gets_a_slice_of_each_step_on_average(steps: Steps, slices: int) -> None:
    begun_s = steps.now_s
    steps.repeat("evil", slices * SLICE_S)
    count = 10 * slices
    for _ in range(count):
        steps.step()
    assert steps.now_s - begun_s <= (count + slices + 0.5) * SLICE_S
    assert len(steps.done) >= 8, "the slices are used"


def test_others_do_not_wait_for_the_debt_of_a_user(steps: Steps) -> None:
    steps.repeat("evil", 8 * SLICE_S)
    steps.repeat("anna", SLICE_S / 2)
    for _ in range(32):
        steps.step()
    assert steps.done.count("evil") <= 5
    assert steps.done.count("anna") >= 28


def test_a_debt_has_a_limit(steps: Steps) -> None:
    """The debt of a job is limited, as its thread may have been preempted for most of the measured time."""
    steps.repeat("anna", 1.0)
    for _ in range(2 * round(MOST_DEBT_S / SLICE_S)):
        steps.step()
    assert len(steps.done) >= 2
