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
        "reason": {"type": "string", "description": "How it arrived or left."},
    }),
    "remarks": _REMARKS,
})  # fmt: skip
_STORE = {
    "type": ["string", "null"],
    "description": "The label of another broker's store: the end of its path; null for the store of this broker.",
}
_PAIRS = {"type": "object", "additionalProperties": {"type": "string"}}
TRACE = _object({
    "messages": _list({
        "store": _STORE,
        "message": _object({
            "ids": {"type": "array", "items": {"type": "integer"}, "description": "In the store: its own and copies'."},
            "message-id": {"type": ["string", "null"]},
            "correlation-id": {"type": ["string", "null"]},
            "application-properties": {"type": "object"},
            "size": {"type": ["integer", "null"]},
        }),
        "on": {
            "type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}},
            "description": "The queues that the message or a copy is on now, by ID.",
        },
        "complete": {"type": "boolean", "description": "False if a part of the history is not kept."},
        "missing": {"type": "array", "items": {"type": "array", "items": _LSN}},
        "events": _list({
            "store": _STORE,
            "lsn": _LSN,
            "time": {**_TIME, "description": "Milliseconds since 1970 of that broker's clock; null if unknown."},
            "kind": {"type": "string"},
            "message_id": {"type": "integer", "description": "The message ID of the store."},
            "queue": {"type": ["string", "null"]},
            "text": {"type": ["string", "null"]},
            "more": _PAIRS,
        }),
    }),
    "found": {"type": "integer", "description": "The number of messages; `messages` has at most 10 of each store."},
    "remarks": _REMARKS,
})  # fmt: skip
