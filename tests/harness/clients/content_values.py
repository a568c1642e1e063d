"""One value of each AMQP type, for messages that a broker must forward unchanged."""

from __future__ import annotations

import uuid
from typing import Any

from proton import (
    Array,
    Data,
    Described,
    byte,
    char,
    decimal32,
    decimal64,
    decimal128,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)

ID = uuid.uuid4()


VALUES: list[Any] = [
    None,
    True,
    False,
    ubyte(255),
    ushort(65535),
    uint(2**32 - 1),
    ulong(2**64 - 1),
    byte(-128),
    short(-32768),
    int32(-(2**31)),
    -(2**63),
    float32(1.5),
    -2.25,
    decimal32(1234),
    decimal64(12345678),
    decimal128(bytes(range(16))),
    char("\N{AUTOMOBILE}"),
    timestamp(1_700_000_000_123),
    ID,
    bytes(range(256)),
    "caf\N{LATIN SMALL LETTER E WITH ACUTE} \N{AUTOMOBILE}" * 100,
    symbol("a-symbol"),
    [1, ["nested", []], {"map": None}],
    {"k": [1, 2], symbol("s"): {1: 2.5}},
    Array(None, Data.INT, 1, 2, 3),
    Described(symbol("some:type"), [1, "two"]),
    Described(ulong(77), "value"),
]
