"""AMQP values as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..codec.types import Array


def plain(value: Any) -> Any:
    """Return an AMQP value as JSON has it: bytes and values of other types become texts."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Array):
        return [plain(item) for item in value.items]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return str(value)
