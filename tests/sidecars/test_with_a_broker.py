"""Tests of the column index process that a broker starts, and that ends with the broker."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from cairnmq.analytics.sidecars.folder import Folder
from cairnmq.analytics.views.journal import open_journal
from tests.harness.process import broker
from tests.harness.sidecars.keepers import fill, has_ended, keeper_of, sealed, until


def made(store: Path) -> set[int]:
    uuid = open_journal(str(store)).log.uuid
    return Folder(str(store / "sidecars"), uuid).containers


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_they_are_made_and_their_process_ends_with_the_broker(tmp_path: Path, end: signal.Signals) -> None:
    store = tmp_path / "store"
    with broker(store, "--port", "0", "--sidecars") as running:
        assert running.wait_for("sidecars in (.*)")[1] == str(store / "sidecars")
        child = keeper_of(running)
        fill(running, 40)
        until(lambda: len(made(store)) >= 3)
        running.stop(end)
        until(lambda: has_ended(child))
    with broker(store, "--port", "0", "--sidecars") as running:
        fill(running, 20)
        until(lambda: made(store) >= sealed(store) and len(made(store)) >= 4)


def test_a_broker_goes_on_without_them(tmp_path: Path) -> None:
    with broker(tmp_path / "store", "--port", "0", "--sidecars") as running:
        os.kill(keeper_of(running), signal.SIGKILL)
        running.wait_for("no more sidecars are written")
        fill(running, 3)
        assert running.stop() == 0
