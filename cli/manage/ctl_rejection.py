"""The error of `cairnmq ctl` for a request that the broker rejected: the action, and the reason once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...base.errors import CairnError

_ACTIONS = {
    "READ": "show", "QUERY": "list", "UPDATE": "change", "PEEK": "browse", "ROLLBACK": "cancel",
}  # fmt: skip


def rejection(
    operation: str, type: str, name: str | None, body: Mapping[str, Any] | None, status: int, description: str
) -> CairnError:
    """Return the error for an answer with *status* and *description*.

    The description of a broker names the entity, as clients of other languages show it alone. The place of this error
    names it already: so it is cut from the beginning of the reason.
    """
    place = f"{_action(operation, type, body)} {type}" + (f" {name}" if name and name != type else "")
    reason, _, remedy = _without_subject(description, type, name).partition("; ")
    if reason == "not found":
        remedy = f"see cairnmq ctl {type}s list"
    elif operation == "MOVE" and description.startswith("there is no queue or exchange"):
        remedy = "create it first, or give --create"
    return CairnError(place, f"{reason} ({status})", remedy)


def _action(operation: str, type: str, body: Mapping[str, Any] | None) -> str:
    if operation == "DECIDE":
        return "commit" if body is not None and body.get("commit") else "roll back"
    if operation == "DELETE" and type in ("connection", "link"):
        return "close"
    return _ACTIONS.get(operation, operation.lower())


def _without_subject(description: str, type: str, name: str | None) -> str:
    """Return *description* without the name of its subject, if that is *name*."""
    if not name:
        return description
    if description == f"there is no {type} {name!r}":
        return "not found"
    name_pattern = rf"{re.escape(repr(name))}|{re.escape(name)}"
    subject = re.match(rf"(?:the )?[\w-]+ (?:{name_pattern})(?P<end>: | )", description)
    subject = subject or re.match(rf"{re.escape(type)} to \S+(?P<end>: )", description)
    if subject is None:
        return description
    rest = description[subject.end() :]
    return rest if subject["end"] == ": " else f"it {rest}"
