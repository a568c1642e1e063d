"""Tests of the figures that the console shows of the past: the broker samples them, whether a page is open or not."""

from __future__ import annotations

import time
from collections.abc import Callable

from cairnmq.console.api.monitor import SAMPLE_S
from tests.harness.console.browser import ApiClient
from tests.harness.console.served import Served
from tests.harness.process import DEADLINE_S


def test_samples_are_older_than_the_first_session(served: Served, login: Callable[[str], ApiClient]) -> None:  # U6
    until_s = time.monotonic() + DEADLINE_S
    while True:
        begin_ms = time.time() * 1000
        client = login("root")
        samples = client.get("/overview")["samples"]
        if len(samples) > 2 and samples[0]["time"] + 1000 * SAMPLE_S < begin_ms:
            break
        assert time.monotonic() < until_s, samples
    times = [one["time"] for one in samples]
    assert times == sorted(set(times))
    day = client.get("/overview?span=day")
    assert day["interval_s"] == 60
    assert day["samples"][-1]["messages"] == samples[-1]["messages"]
    assert client.api("GET", "/overview?span=week").status == 400


def test_rates_of_a_queue_continue_behind_a_sample(root: ApiClient) -> None:  # U6
    root.done("POST", "/queues", {"name": "sampled"})
    root.done("POST", "/queues/sampled/publish", {"body": "one"})
    until_s = time.monotonic() + DEADLINE_S
    while not (items := root.get("/queues/sampled/rates")["items"]) or not items[-1]["messages"]:
        assert time.monotonic() < until_s
    assert items[-1]["messages"] == 1
    rest = root.get(f"/queues/sampled/rates?after={items[0]['number']}")["items"]
    assert [one["number"] for one in rest[: len(items) - 1]] == [one["number"] for one in items[1:]]
    row = next(row for row in root.get("/queues?per_page=1000")["items"] if row["name"] == "sampled")
    assert row["state"] == "no consumers"
    root.done("DELETE", "/queues/sampled")
