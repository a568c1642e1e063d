"""Encoded message contents."""

from __future__ import annotations

from uuid import UUID

from cairnmq.amqp.codec import sections
from cairnmq.amqp.codec.header import Header
from tests.harness.amqp.encoding import message_annotations


def content(body: bytes = b"cairn") -> bytes:
    return b"".join((
        sections.header_section(Header(durable=True, priority=7, ttl_ms=5000, first_acquirer=True, delivery_count=2)),
        message_annotations({"x-opt-a": 5}),
        sections.properties_section(sections.Properties(
            UUID(int=5), b"me", "orders", "subject", "back", 12, "text/plain", "gzip", 2000, 1000, "group", 3, "there",
        )),
        sections.application_properties_section({"size": 3, "red": True, "name": "x"}),
        b"\x00Su\xa0" + bytes([len(body)]) + body,
    ))  # fmt: skip
