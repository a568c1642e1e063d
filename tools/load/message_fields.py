"""A message as fields for JSON, with the names that `PEEK` of the management has."""

from __future__ import annotations

import base64
from typing import Any

from ...amqp.client.plain_values import plain
from ...amqp.codec import decode, header, sections
from ...base.texts import text_in


def body_of(content: bytes) -> Any:
    """Return the body of an encoded message: the bytes of its data sections, or its value. Raises `Malformed`."""
    body = sections.index(content).body
    values = [decode.value(content, section.value)[0] for section in body]
    if not body or body[0].code == sections.VALUE:
        return values[0] if values else None
    return b"".join(values) if body[0].code == sections.DATA else values[0] if len(values) == 1 else values


def message_fields(content: bytes) -> dict[str, Any]:
    """Return the fields that are set. Raises `Malformed`."""
    found = sections.index(content)
    head = header.parse(content)
    fields: dict[str, Any] = {
        "durable": head.durable, "priority": head.priority, "ttl": head.ttl_ms, "delivery-count": head.delivery_count,
    }  # fmt: skip
    if found.properties is not None:
        values = sections.properties(content, found.properties.value)._asdict()
        fields["properties"] = {
            name.removesuffix("_ms").replace("_", "-"): plain(value)
            for name, value in values.items() if value is not None
        }  # fmt: skip
    for name in ("message_annotations", "application_properties"):
        section = getattr(found, name)
        if section is not None:
            fields[name.replace("_", "-")] = plain(decode.value(content, section.value)[0])
    body = body_of(content)
    text = text_in(body) if isinstance(body, bytes) else None
    if isinstance(body, bytes):
        fields["body"] = base64.b64encode(body).decode() if text is None else text
        fields["body-encoding"] = "base64" if text is None else "text"
    else:
        fields["body"], fields["body-encoding"] = plain(body), "value"
    return {name: value for name, value in fields.items() if value is not None or name == "body"}
