"""Selectors as link filters, and messages that match them."""

from __future__ import annotations

from cairnmq.amqp.codec import encode, sections
from tests.harness.broker.world import message


def filters(text: str) -> bytes:
    descriptor = encode.symbol("apache.org:selector-filter:string")
    return encode.mapped([encode.symbol("s"), b"\x00" + descriptor + encode.string(text)])


def colourful(number: int, size: int, durable: bool) -> bytes:
    plain = message(number, size, durable)
    colour = sections.application_properties_section({"colour": number % 3})
    return plain[:7] + colour + plain[7:]
