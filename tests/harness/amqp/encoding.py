"""AMQP values as the bytes that the codec under test has to read."""

from __future__ import annotations

from typing import Any

from proton import Data


def encoded(value: Any) -> bytes:
    data = Data()
    data.put_object(value)
    result: bytes = data.encode()
    return result
