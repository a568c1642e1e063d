"""AMQP sections of messages as typed columns; decoded only on request, a message at a time.

A row is the same whichever of its columns are read.

Ids are text: a number in decimal, a UUID in its usual form, bytes in hexadecimal digits. The values of annotations and
of application properties are text too: true and false, numbers in decimal, times in ms since 1970, bytes in hexadecimal
digits, and JSON for lists and maps. A content that is no AMQP message has `amqp_error`, and null for the rest. Of a
message in pieces a record has the first one, and the sections that are whole in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pyarrow as pa

from ...amqp.codec import header, sections
from ...amqp.codec.bodies import body_text, data_in
from ...amqp.codec.primitives import Malformed
from ...amqp.codec.sections import DATA, SEQUENCE, VALUE, Properties
from ...base.times import LEAST_US, MOST_US

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
_PROPERTIES = {
    "amqp_message_id": "message_id", "absolute_expiry_time": "absolute_expiry_time_ms",
    "creation_time": "creation_time_ms",
    **{name: name for name in ("user_id", "to", "subject", "reply_to", "correlation_id", "content_type",
                               "content_encoding", "group_id", "group_sequence", "reply_to_group_id")},
}  # fmt: skip
_ANNOTATIONS = ("delivery_annotations", "message_annotations")


def decoded(contents: Iterable[bytes | None], columns: Iterable[str], *, complete: bool = True) -> list[pa.Array]:
    """Return the *columns* of each content; null for missing values. *complete*: all contents are complete.

    Every section is decoded, whichever columns are wanted: an error in one section makes the others null, too.
    """
    names = list(columns)
    rows = [{} if content is None else _row(content, complete) for content in contents]
    return [pa.array([row.get(name) for row in rows], SCHEMA.field(name).type) for name in names]


def _row(content: bytes, complete: bool) -> dict[str, Any]:
    try:
        found = sections.index(content, complete=complete)
        if not content or (found.end == 0 and complete):
            raise Malformed("it has no section")
        row = header.parse(content)._asdict()
        if found.properties:
            row |= _properties(sections.properties(content, found.properties.value))
        for name in _ANNOTATIONS:
            if (section := getattr(found, name)) is not None:
                row[name] = _texts(sections.annotations_of(content, section.value))
        if found.application_properties is not None:
            read = sections.application_properties(content, found.application_properties.value)
            row["application_properties"] = _texts(read)
        if found.footer is not None:
            sections.annotations_of(content, found.footer.value)
        if found.body:
            kind = found.body[0].code
            row["body_kind"] = _KINDS[kind]
            row["body"] = b"".join(
                data_in(content, one.value, one.end) if kind == DATA else content[one.value : one.end]
                for one in found.body
            )
            row["body_text"] = body_text(content, found)
    except (Malformed, OverflowError) as error:
        return {"amqp_error": str(error)}
    return row


def _texts(of: dict[Any, Any]) -> list[tuple[str, str | None]]:
    return [(str(key), text(value)) for key, value in of.items()]


def _properties(of: Properties) -> dict[str, Any]:
    row = {name: getattr(of, field) for name, field in _PROPERTIES.items()}
    for name in ("amqp_message_id", "correlation_id"):
        if row[name] is not None:
            row[name] = text(row[name])
    for name in ("absolute_expiry_time", "creation_time"):
        if row[name] is not None:
            time_us = row[name] * 1000
            row[name] = time_us if LEAST_US <= time_us <= MOST_US else None
    return row


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
