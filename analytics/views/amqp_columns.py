"""AMQP sections of messages as typed columns; decoded only on request, a message at a time.

Ids are text: a number in decimal, a UUID in its usual form, bytes in hexadecimal digits. The values of annotations and
of application properties are text too: true and false, numbers in decimal, times in ms since 1970, bytes in hexadecimal
digits, and JSON for lists and maps. A content that is no AMQP message has `amqp_error`, and null for the rest. Of a
message in pieces a record has the first one, and the sections that are whole in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa

from ...amqp.codec import header, sections
from ...amqp.codec.bodies import body_text, data_in
from ...amqp.codec.primitives import Malformed
from ...amqp.codec.sections import DATA, SEQUENCE, VALUE, Properties

_TIME = pa.timestamp("us", "UTC")
_MAP = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema([
    ("durable", pa.bool_()), ("priority", pa.int16()), ("ttl_ms", pa.int64()), ("first_acquirer", pa.bool_()),
    ("delivery_count", pa.int64()), ("amqp_message_id", pa.string()), ("user_id", pa.binary()), ("to", pa.string()),
    ("subject", pa.string()), ("reply_to", pa.string()), ("correlation_id", pa.string()),
    ("content_type", pa.string()), ("content_encoding", pa.string()), ("absolute_expiry_time", _TIME),
    ("creation_time", _TIME), ("group_id", pa.string()), ("group_sequence", pa.int64()),
    ("reply_to_group_id", pa.string()), ("delivery_annotations", _MAP), ("message_annotations", _MAP),
    ("application_properties", _MAP), ("body_kind", pa.string()), ("body", pa.binary()),
    ("body_text", pa.string()), ("amqp_error", pa.string()),
])  # fmt: skip
"""body       the bytes of the data sections, one after the other; of the other kinds as AMQP encodes them
body_text  a value that is a string, or data that are text: UTF-8 without control characters but tabs, line ends, form
           feeds and escapes; null for anything else
"""
_KINDS = {DATA: "data", SEQUENCE: "sequence", VALUE: "value"}
_HEADER = ("durable", "priority", "ttl_ms", "first_acquirer", "delivery_count")
_PROPERTIES = {
    "amqp_message_id": "message_id", "absolute_expiry_time": "absolute_expiry_time_ms",
    "creation_time": "creation_time_ms",
    **{name: name for name in ("user_id", "to", "subject", "reply_to", "correlation_id", "content_type",
                               "content_encoding", "group_id", "group_sequence", "reply_to_group_id")},
}  # fmt: skip
_MAPS = ("delivery_annotations", "message_annotations", "application_properties")


def decoded(contents: Iterable[bytes | None], columns: Iterable[str], *, complete: bool = True) -> list[pa.Array]:
    """Return the *columns* of each content; null for missing values. *complete*: all contents are complete."""
    names = list(columns)
    decode = partial(_row, wants=frozenset(names), complete=complete)
    rows = [{} if content is None else decode(content) for content in contents]
    return [pa.array([row.get(name) for row in rows], SCHEMA.field(name).type) for name in names]


def _row(content: bytes, wants: frozenset[str], complete: bool) -> dict[str, Any]:
    row: dict[str, Any] = {}
    try:
        found = sections.index(content, complete=complete)
        if not content or (found.end == 0 and complete):
            raise Malformed("it has no section")
        if wants & {*_HEADER}:
            said = header.parse(content)
            row |= {name: getattr(said, name) for name in _HEADER}
        if wants & {*_PROPERTIES}:
            at = found.properties.value if found.properties else 0
            row |= _properties(sections.properties(content, at))
        for name in _MAPS:
            section = getattr(found, name)
            if name in wants and section is not None:
                read: Callable[[bytes, int], dict[Any, Any]] = (
                    sections.application_properties if name == _MAPS[2] else sections.annotations_of
                )
                row[name] = [(str(key), text(value)) for key, value in read(content, section.value).items()]
        if found.body:
            kind = found.body[0].code
            row["body_kind"] = _KINDS[kind]
            if "body" in wants:
                row["body"] = b"".join(
                    data_in(content, one.value, one.end) if kind == DATA else content[one.value : one.end]
                    for one in found.body
                )
            if "body_text" in wants:
                row["body_text"] = body_text(content, found)
    except (Malformed, OverflowError) as error:
        return {"amqp_error": str(error)}
    return row


def _properties(of: Properties) -> dict[str, Any]:
    row = {name: getattr(of, field) for name, field in _PROPERTIES.items()}
    for name in ("amqp_message_id", "correlation_id"):
        if row[name] is not None:
            row[name] = text(row[name])
    for name in ("absolute_expiry_time", "creation_time"):
        if row[name] is not None:
            row[name] = None if abs(row[name]) > _MOST_MS else row[name] * 1000
    return row


_MOST_MS = 253_402_300_799_999
"""The end of the year 9999: what lies behind it no calendar takes."""


def text(value: Any) -> str | None:
    """A value of an AMQP map, or an id, as text."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, default=text, ensure_ascii=False)
    return str(value) if isinstance(value, str | int | float | UUID) else repr(value)
