"""The operation that returns samples."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Mapping

from ...amqp.codec import encode
from ...broker.nodes.access_control import MONITOR
from ..protocol.call import Call
from ..protocol.entity import Operation, Type
from ..protocol.request import BAD_REQUEST, Refusal, encoded_map, text
from .ring import SPANS, History
from .sampler import Sampler

ARRAY32, DOUBLE = 0xF0, 0x82


def add_samples(broker: Type, queues: Type, sampler: Sampler) -> None:
    """Add the operation to the types of the broker and of its queues."""

    def of_broker(call: Call) -> History:
        broker.wanted(call, MONITOR)
        return sampler.broker

    broker.add(samples_operation(of_broker, lambda: {"totals": encode.value(sampler.totals)}))
    queues.add(samples_operation(lambda call: sampler.history_of(queues.wanted(call, MONITOR))))


def samples_operation(history: Callable[[Call], History], more: Callable[[], Mapping[str, bytes]] = dict) -> Operation:
    """Return the operation of a type. *history* finds the entity of a call; *more* adds encoded values."""

    def do(call: Call) -> None:
        asked = call.asked()
        span, after = text(asked, "span", "hour"), asked.get("after", 0)
        if span not in SPANS:
            raise Refusal(BAD_REQUEST, f"unknown span {span[:40]!r} (known: {', '.join(SPANS)})")
        if isinstance(after, bool) or not isinstance(after, int) or after < 0:
            raise Refusal(BAD_REQUEST, "after: the number of a sample is expected")
        begin, columns = history(call).since(span, after + 1 if after else 0)
        parts = {"number": encode.value(begin), "interval-seconds": encode.value(SPANS[span].interval_s)}
        samples = encoded_map({name: encoded(values) for name, values in columns.items()})
        call.answer_encoded(encoded_map({**parts, "samples": samples, **more()}))

    meaning = (
        "Returns figures of the last `hour` each 5 s, or of the last `day` each minute (`span`). `samples` has an "
        "array of each figure, with NaN for missing ones. `number` times `interval-seconds` is the time of the first "
        "one in seconds since 1970. `after` is the number of the last known sample."
    )
    return Operation("SAMPLES", ("span", "after"), meaning, do)


def encoded(values: array[float]) -> bytes:
    """Return an AMQP array of doubles. It is encoded at once: 5,000 values one by one take 10 ms of the core."""
    doubles = array("d", values)
    if sys.byteorder == "little":
        doubles.byteswap()
    data = doubles.tobytes()
    head = (len(data) + 5).to_bytes(4, "big") + len(values).to_bytes(4, "big")
    return bytes((ARRAY32,)) + head + bytes((DOUBLE,)) + data
