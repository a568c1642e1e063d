"""Tests of the overview's estimate of the time until the disk is full."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from cairnmq.console.api.monitor import FORECAST_SAMPLES, SAMPLE_S, full_in_s
from tests.conftest import Tell
from tests.harness.clients.peers import Peer
from tests.harness.console.browser import ApiClient
from tests.harness.console.shop import until
from tests.harness.mounted_disk import mounted_disk
from tests.harness.process import DEADLINE_S, broker

DISK_BYTES = 64 << 20


def samples(*free_bytes: int | None, every_s: float = SAMPLE_S) -> list[dict[str, Any]]:
    return [{"time": 1000.0 * every_s * number, "free_bytes": free} for number, free in enumerate(free_bytes)]


@pytest.mark.parametrize(("rate", "count", "every_s"), [(1, 3, 5.0), (1000, 30, 5.0), (12_345_678, 60, 1.0)])
def test_forecast_follows_a_constant_rate(rate: int, count: int, every_s: float) -> None:
    left_s = 86_400
    free = [int(rate * (left_s + every_s * (count - 1 - number))) for number in range(count)]
    assert full_in_s(samples(*free, every_s=every_s)) == left_s


def test_forecast_is_none_unless_the_disk_fills_up() -> None:
    assert full_in_s([]) is None
    assert full_in_s(samples(100, 50)) is None, "two samples are no trend"
    assert full_in_s(samples(100, 100, 100)) is None
    assert full_in_s(samples(100, 50, 150)) is None, "the archive was emptied"
    assert full_in_s(samples(None, None, None, None)) is None, "a store without a disk"
    assert full_in_s(samples(100, 50, 0, every_s=0)) is None, "samples of one time"
    assert full_in_s(samples(100, 50, 0)) == 0


def test_forecast_uses_the_last_samples_with_a_known_value() -> None:
    full = [10**9] * 100
    falling = [10**6 - 1000 * number for number in range(FORECAST_SAMPLES)]
    expected = full_in_s(samples(*falling))
    assert expected == round(falling[-1] / 1000 * SAMPLE_S)
    assert full_in_s(samples(*full, *falling)) == expected, "what was before does not count"
    assert full_in_s(samples(90, None, 60, None, 30)) == round(30 / (60 / (4 * SAMPLE_S)))


def has_more_samples(client: ApiClient, known: int) -> bool:
    return len(client.get("/overview")["samples"]) > known


def test_overview_forecasts_when_a_small_disk_is_full(tmp_path: Path, tell: Tell) -> None:
    with (
        mounted_disk(tmp_path / "disk", f"size={DISK_BYTES}") as disk,
        broker(disk / "store", "--container-size", "512K", "--http-port", "0") as process,
    ):
        client = ApiClient(int(process.wait_for(r"web console at .*:(\d+)/")[1]))
        assert client.login().status == 201
        peer = Peer(process.port)
        sender = peer.sender("filling")
        until_s = time.monotonic() + DEADLINE_S
        while (found := client.get("/overview"))["disk"]["full_in_s"] is None:
            assert time.monotonic() < until_s, found["disk"]
            known = len(found["samples"])
            peer.send(sender, Message(body=bytes(400_000), durable=True), Message(body=bytes(400_000), durable=True))
            peer.settle_down()
            until(partial(has_more_samples, client, known), "a new sample")
        disk_free = os.statvfs(disk)
        free_bytes = found["disk"]["free_bytes"]
        assert disk_free.f_bavail * disk_free.f_frsize <= free_bytes < DISK_BYTES
        first, last = found["samples"][0], found["samples"][-1]
        assert last["free_bytes"] == free_bytes
        filled = first["free_bytes"] - free_bytes
        passed_s = (last["time"] - first["time"]) / 1000
        forecast_s = found["disk"]["full_in_s"]
        tell(f"{filled >> 10} KiB in {passed_s:.1f} s: the other {free_bytes >> 10} KiB last {forecast_s} s")
        assert forecast_s == pytest.approx(passed_s * free_bytes / filled, abs=1)
        peer.close()
