"""JSON schemas of the results of history, for the OpenAPI description."""

from __future__ import annotations

from typing import Any

_LSN = {"type": "integer", "description": "A position in the journal."}
_TIME = {"type": ["number", "null"], "description": "Milliseconds since 1970; null if unknown."}
_MESSAGE: dict[str, Any] = {
    "id": {"type": "integer", "description": "The message ID of the store."},
    "message_id": {
        "type": ["string", "null"],
        "description": "The message-id of its sender; null for a message without one, or one that cannot be read.",
    },
    "queue": {"type": "string"},
    "lsn": _LSN,
    "time": _TIME,
    "size": {"type": ["integer", "null"], "description": "Bytes of its content; null if unknown."},
}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": _object(properties)}


_REMARKS = {"type": "array", "items": {"type": "string"}}
CONTENTS = _object({
    "lsn": _LSN,
    "complete": {"type": "boolean", "description": "False if a part of the history is not kept."},
    "faults": {"type": "array", "items": {"type": "string"}, "description": "Parts that cannot be read."},
    "queues": _list({"queue": {"type": "string"}, "messages": {"type": "integer"}, "bytes": {"type": "integer"}}),
    "items": _list({**_MESSAGE, "state": {"type": "string"}}),
    "total": {"type": "integer", "description": "The number of messages; `items` has at most `limit`."},
    "remarks": _REMARKS,
})  # fmt: skip
DIFFERENCE = _object({
    "from": _LSN,
    "to": _LSN,
    "queues": _list({
        "queue": {"type": "string"},
        "added": {"type": "integer"},
        "removed": {"type": "integer"},
        "passed": {"type": "integer", "description": "Messages that arrived and left in between."},
    }),
    "items": _list({
        "change": {"enum": ["added", "removed"]},
        **_MESSAGE,
        "why": {"type": "string", "description": "How it arrived or left."},
    }),
    "remarks": _REMARKS,
})  # fmt: skip
