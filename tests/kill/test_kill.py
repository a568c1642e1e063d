"""Tests that a broker with real clients that is killed at random times keeps all confirmed messages.

`CAIRN_KILLS` and `CAIRN_SEED` scale and repeat a run. A seed repeats the decisions, not their timing in the kernel.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import SystemRandom

import pytest

from cairnmq.tools.soak.checker import Verdict, check
from cairnmq.tools.soak.client import FORCED
from cairnmq.tools.soak.history import Event, Stopped
from tests.harness.kill.killed_broker import Group
from tests.harness.thorough import amount

KILLS = amount("CAIRN_KILLS", 15, 2)
SEED = os.environ.get("CAIRN_SEED") or str(SystemRandom().randrange(10**6))
GROUPS = (
    ("--container-size", "524288", "--checkpoint-interval", "300000"),
    ("--worker-threads", "2", "--memory-limit", "0"),
)
"""Options of the brokers that run in parallel, each with its own store and clients: one starts while the other works.

The first takes checkpoints continuously. The second reads waiting messages back, as with queues deeper than memory."""


@pytest.mark.timeout(300 + KILLS * 20)
def test_what_was_confirmed_survives_kills(tmp_path: Path, tell: Callable[[str], None]) -> None:
    begun_s = time.monotonic()
    groups = []
    for number, options in enumerate(GROUPS[:KILLS]):
        directory = tmp_path / f"group{number}"
        directory.mkdir()
        groups.append(Group(f"g{number}", SEED, (KILLS + number) // len(GROUPS), directory, *options))
    with ThreadPoolExecutor(len(groups)) as threads:
        runs = [threads.submit(group.run) for group in groups]
    for run in runs:
        run.result()
    histories = [group.history() for group in groups]
    verdicts = [check(history) for history in histories]
    total = _sum(verdicts)
    kills = sum((group.kills for group in groups), start=Counter[str]())
    tell(
        f"{kills.total()} kills ({kills['recovering']} in recovery): {total.line()}; "
        f"{time.monotonic() - begun_s:.0f} s, seed {SEED}"
    )
    assert kills.total() == KILLS
    for group, history, verdict in zip(groups, histories, verdicts, strict=True):
        assert not verdict.found, _stories(verdict, history, tmp_path)
        assert not group.complaints(), group.complaints()
        assert verdict.confirmed
        assert verdict.consumed
        stopped = {event.life for event in history if isinstance(event, Stopped)}
        unexpected = [said for said in verdict.troubles if said.life not in stopped or FORCED not in said.text]
        assert not unexpected, unexpected[:10]
    shutil.rmtree(tmp_path)  # about 100 MB


def _sum(verdicts: list[Verdict]) -> Verdict:
    total = Verdict()
    for verdict in verdicts:
        total.found += verdict.found
        total.confirmed += verdict.confirmed
        total.in_doubt += verdict.in_doubt
        total.consumed += verdict.consumed
        total.redelivered += verdict.redelivered
    return total


def _stories(verdict: Verdict, history: list[Event], place: Path) -> str:
    """Return the first findings, each with the recorded events of its message."""
    lines = [f"seed {SEED}; histories and broker log in {place}"]
    for kind, message in verdict.found[:5]:
        lines.append(f"{kind}: {message or 'a message without an id'}")
        about = [event for event in history if getattr(event, "message", None) == message]
        lines += [f"    {event}" for event in sorted(about, key=lambda event: event.at)[:40]]
    return "\n".join(lines)
