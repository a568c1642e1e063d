"""Tests of random runs of a real cluster, see `real_cluster`, and of the checker on histories with violations.

`CAIRN_CLUSTER_RUNS` and `CAIRN_SEED` scale and repeat a run: `make cluster-runs RUNS=20 SEED=7`.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest

from cairnmq.tools.lab.cluster_lab import unavailable_reason
from cairnmq.tools.soak.history import Answered, Confirmed, Got, Refused, Sent, Settled
from tests.harness.cluster import guarantees as promises
from tests.harness.cluster.failover_client import Came
from tests.harness.cluster.real_cluster import RealScenario, three_node_lab
from tests.harness.thorough import amount

RUNS = amount("CAIRN_CLUSTER_RUNS", 3, 1)
SEED = int(os.environ.get("CAIRN_SEED") or SystemRandom().randrange(10**6))
FAULTS_S = 6.0


@pytest.mark.timeout(300 + 480 * RUNS)
def test_lives_of_a_real_cluster(tmp_path: Path) -> None:  # D1 to D6, D15, D27, D32, D34, D36, rules 1, 4, 5, 17
    reason = unavailable_reason()
    if reason:
        pytest.skip(f"no corosync: {reason}")
    with three_node_lab(tmp_path / "lab") as lab:
        for seed in range(SEED, SEED + RUNS):
            place = tmp_path / str(seed)
            place.mkdir()
            RealScenario(lab, seed, place, FAULTS_S).run()


SENT = Sent("s:1", "q", "s", 1, 0, 1, "d")
SECOND = Sent("s:2", "q", "s", 2, 0, 2, "d")
ELSEWHERE = Sent("s:2", "q", "s", 2, 1, 5, "d")
"""The second message, sent over another connection."""
CAME = Came("r/1", 3)


def got(message: str = "s:1", at: int = 10, marked: bool = False, session: str = "r/1", digest: str = "d") -> Got:
    return Got(message, "q", session, 0, at, digest, marked)


TAKEN = Answered("s:1", "q", "r/1", 0, 20, "taken")
FINAL = Settled("s:1", "q", "r/1", 0, 30)
GOOD: list[Any] = [SENT, Confirmed("s:1", 2), CAME, got(), TAKEN, FINAL]


@pytest.mark.parametrize(
    ("history", "there", "said"),
    [
        (GOOD, [[], [], []], ""),
        ([SENT, Confirmed("s:1", 2)], [["s:1"]] * 3, ""),
        ([SENT, Confirmed("s:1", 2), CAME, got()], [[]] * 3, "confirmed, and lost: 1, s:1"),
        (GOOD, [["s:1"]] * 3, "accepted for good, and still there: 1, s:1"),
        ([*GOOD, Came("r/2", 40), got(at=50, marked=True, session="r/2")], [[]] * 3, "accepted for good, and handed"),
        ([*GOOD, Came("r/2", 25), got(at=50, marked=True, session="r/2")], [[]] * 3, ""),
        ([SENT, CAME, got(), Came("r/2", 5), got(session="r/2")], [[]] * 3, "handed out twice, and none of the two"),
        ([SENT, CAME, got(), Came("r/2", 5), got(session="r/2", marked=True)], [[]] * 3, ""),
        ([SENT, SECOND, CAME, got("s:2", 10), got("s:1", 11)], [[]] * 3, "out of order: 1, s:1"),
        ([SENT, SECOND, CAME, got("s:2", 10), got("s:1", 11, marked=True)], [[]] * 3, ""),
        ([SENT, ELSEWHERE, CAME, got("s:2", 10), got("s:1", 11)], [[]] * 3, ""),
        ([SENT, ELSEWHERE, Confirmed("s:1", 6), CAME, got("s:2", 10), got("s:1", 11), TAKEN], [[]] * 3, ""),
        ([SENT, Confirmed("s:1", 4), ELSEWHERE, CAME, got("s:2"), got("s:1", 11), TAKEN], [[]] * 3, "out of order: 1"),
        ([CAME, got()], [[]] * 3, "nobody sent it: 1, s:1"),
        ([SENT, CAME, got(digest="x")], [[]] * 3, "it is not what was sent: 1, s:1"),
        ([SENT, Refused("s:1", 2, 37)], [["s:1"]] * 3, "refused, and there: 1, s:1"),
        ([SENT], [["s:1"], ["s:1"], []], "not the same on all members: 1, s:1"),
        ([SENT], [["s:1", "s:1"]] * 3, "there twice: 1, s:1"),
    ],
)
def test_what_the_checker_says(history: list[Any], there: list[list[str]], said: str) -> None:
    contents = {node: {"q": messages} for node, messages in enumerate(there, 1)}
    found = promises.broken(history, contents)
    assert bool(found) == bool(said)
    assert said in "".join(found)
