"""AMQP values, encoded as input of the codec under test."""

from __future__ import annotations

from typing import Any

from proton import Data

from cairnmq.amqp.codec import encode, sections


def encoded(value: Any) -> bytes:
    data = Data()
    data.put_object(value)
    result: bytes = data.encode()
    return result


def message_annotations(entries: dict[str, Any]) -> bytes:
    """Return the section of these annotations; values as `encode.value` accepts them."""
    parts = [part for name, of in entries.items() for part in (encode.symbol(name), encode.value(of))]
    return encode.described(sections.MESSAGE_ANNOTATIONS, encode.mapped(parts))
