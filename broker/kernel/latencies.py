"""Latencies of messages as histograms, sampled per batch: no message costs a measurement of its own.

| histogram | from | to | sample |
|---|---|---|---|
| `settle_s` | a record waits for the disk | durable, and its client has the answer | one for each flush or batch |
| `dispatch_s` | records are durable | their messages are handed to connections | one for each flush |
| `delivery_s` | a message is handed to a connection | its consumer settles it | one at a time for each consumer |
"""

from __future__ import annotations

from ...base.histogram import Histogram

BOUNDS_S = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Bounds from a flush of a fast disk to a consumer that works for a minute."""


class Latencies:
    """The latency histograms of one broker. The core counts, any thread reads."""

    def __init__(self) -> None:
        self.settle_s = Histogram(BOUNDS_S)
        self.dispatch_s = Histogram(BOUNDS_S)
        self.delivery_s = Histogram(BOUNDS_S)
