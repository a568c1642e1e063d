"""Descriptions of messages as maps, for PEEK. They are made on the thread of the reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...amqp.codec import decode, encode, header, sections
from ...amqp.codec.primitives import Malformed
from ...amqp.codec.types import Timestamp
from ...base.errors import CairnError
from ...broker.messages.entry import Entry
from ...broker.messages.message_times import due_us_of
from ...store.contract.interface import MessageStore
from ..protocol.request import encoded_map

MOST_ANSWER_BYTES = 1 << 20
"""The number of bytes after which a page ends."""

ATTRIBUTES = (
    ("position", "number", "The position on the queue: `after` for the next page."),
    ("id", "number", "The message ID of the store; 0 for a message that is not stored."),
    ("size", "number", "Size of the encoded message in bytes."),
    ("pieces", "number", "The number of pieces in the store."),
    ("due", "time", "The delivery time of a message that waits for it; null for others."),
    ("redelivered", "boolean", "Whether it may have been delivered before."),
    ("failures", "number", "Failed deliveries besides those in the header."),
    ("header", "map", "`durable`, `priority`, `ttl`, `first-acquirer`, `delivery-count`."),
    ("message-annotations", "map", "Unchanged."),
    ("properties", "map", "The properties that are set, by their AMQP names."),
    ("application-properties", "map", "Unchanged."),
    ("body-kind", "string", "`data`, `sequence` or `value`; null if unknown."),
    ("body", "any", "With `body-bytes`: the beginning of the data, or the value if it is not longer."),
    ("malformed", "string", "The error in the encoding; null if none was found."),
)  # fmt: skip
_KINDS = {sections.DATA: "data", sections.SEQUENCE: "sequence", sections.VALUE: "value"}
_HEADER = ("durable", "priority", "ttl", "first-acquirer", "delivery-count")
_PROPERTIES = [name.removesuffix("_ms").replace("_", "-") for name in sections.Properties._fields]


class PeekedMessage(NamedTuple):
    """A message on a queue, as the core sees it."""

    position: int
    message_id: int
    acquired: bool
    failures: int
    size_bytes: int
    content: bytes | None
    """The content; None if it must be read."""
    pieces: int
    due_us: int
    """The delivery time in microseconds since 1970; 0 without one, or if it is over."""


def peeked(entry: Entry, store: MessageStore, now_us: int) -> PeekedMessage:
    """Return the message of *entry*; *now_us*: the time in microseconds since 1970. Core only."""
    content = entry.content
    pieces, size_bytes = 1, 0
    if isinstance(content, bytes):
        size_bytes = len(content)
    elif content is None:
        pieces, size_bytes = 0, store.size_of(entry.message_id)
    else:
        pieces = content.pieces
        size_bytes = sum(len(content.piece(number)) for number in range(pieces))
        content = content.piece(0)
    return PeekedMessage(
        entry.position, entry.message_id, entry.previously_delivered, entry.failures, size_bytes, content, pieces,
        due if (due := due_us_of(entry)) > now_us else 0,
    )  # fmt: skip


def described(store: MessageStore, seen: Sequence[PeekedMessage], body_bytes: int) -> bytes:
    """Return an encoded answer that describes these messages. Any thread."""
    messages: list[bytes] = []
    size_bytes = 0
    last = 0
    for one in seen:
        if size_bytes > MOST_ANSWER_BYTES:
            break
        last = one.position
        if one.content is None:
            try:
                pieces = store.piece_count(one.message_id)
                one = one._replace(content=store.load_piece(one.message_id, 0), pieces=pieces)
            except (CairnError, LookupError):  # it was dequeued meanwhile
                continue
        messages.append(_message(one, body_bytes))
        size_bytes += len(messages[-1])
    return encoded_map({"messages": encode.listed(messages), "next": encode.value(last)})


def _message(one: PeekedMessage, body_bytes: int) -> bytes:
    content = one.content or b""
    reported: dict[str, bytes] = {
        "position": encode.value(one.position),
        "id": encode.value(one.message_id),
        "size": encode.value(one.size_bytes),
        "pieces": encode.value(one.pieces),
        "due": encode.value(Timestamp(one.due_us // 1000)) if one.due_us else encode.NULL,
        "redelivered": encode.value(one.acquired),
        "failures": encode.value(one.failures),
    }
    try:
        reported |= _sections(content, one.pieces == 1, body_bytes)
    except Malformed as error:
        reported["malformed"] = encode.value(str(error))
    return encoded_map({name: reported.get(name, encode.NULL) for name, _, _ in ATTRIBUTES})


def _sections(content: bytes, complete: bool, body_bytes: int) -> dict[str, bytes]:
    found = sections.index(content, complete=complete)
    head = header.parse(content)
    fields = dict(zip(_HEADER, head, strict=False))
    if head.message_format:
        fields["message-format"] = head.message_format
    reported = {"header": encode.value(fields)}
    if found.properties is not None:
        sections.properties(content, found.properties.value)  # raises if they are of wrong types
        reported["properties"] = _properties(decode.value(content, found.properties.value)[0])
    for name, section in (
        ("message-annotations", found.message_annotations),
        ("application-properties", found.application_properties),
    ):
        if section is not None:
            decode.value(content, section.value)  # sections that are passed on unchanged must be valid
            reported[name] = content[section.value : section.end]
    if found.body:
        first = found.body[0]
        reported["body-kind"] = encode.value(_KINDS[first.code])
        reported["body"] = _body(content, found.body, body_bytes)
    return reported


def _properties(values: list[Any]) -> bytes:
    """Return the properties that are set, by AMQP's names, with their types."""
    return encode.value({name: value for name, value in zip(_PROPERTIES, values, strict=False) if value is not None})


def _body(content: bytes, body: Sequence[sections.Section], most_bytes: int) -> bytes:
    if not most_bytes:
        return encode.NULL
    if body[0].code == sections.DATA:
        parts: list[bytes] = []
        for section in body:
            data: Any = decode.value(content, section.value)[0]
            parts.append(data[: most_bytes - sum(map(len, parts))])
        return encode.binary(b"".join(parts))
    first = body[0]
    if first.end - first.value > most_bytes or len(body) > 1:
        return encode.NULL
    decode.value(content, first.value)
    return content[first.value : first.end]
