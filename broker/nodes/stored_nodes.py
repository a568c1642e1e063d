"""Nodes as the store has them: a wiring may have been edited by hand, so their arguments are checked like a client's.

An invalid argument of a queue or a template is ignored, as is a node or a binding that can't exist. Each is logged, and
stays in the store.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ...base.errors import CairnError, StoreError
from ...store.contract.wiring_rows import QueueRow
from ..contents.policy import policy_of

log = logging.getLogger(__name__)

FOLLOWS, NOTES_OF = "follows", "notes-of"
"""Arguments of store queues that are no nodes: the copy of a queue of another site, and the notes to that."""
_SOURCE = ("connector", "source", "follower")


def ignored(what: str, error: CairnError) -> None:
    """Log that *what* of the wiring is ignored, and why."""
    text = "wiring: %s is ignored: %s"
    log.warning(text, what, error, extra={"event": "wiring.invalid-row"})


def is_copy(row: QueueRow) -> bool:
    """Return whether a queue is the copy of a queue of another site, or has the notes to one."""
    follows = row.arguments.get(FOLLOWS)
    if isinstance(follows, Mapping) and all(isinstance(follows.get(name), str) for name in _SOURCE):
        return True
    return isinstance(row.arguments.get(NOTES_OF), str)


def valid_arguments(name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return those of the *arguments* of a queue or a template that are valid."""
    try:
        policy_of(name, arguments)
        return arguments
    except StoreError:
        valid: dict[str, Any] = {}
    for argument, value in arguments.items():
        try:
            policy_of(name, {argument: value})
            valid[argument] = value
        except StoreError as error:
            ignored(f"an argument of {name!r}", error)
    return valid
