"""The conditions of a binding beyond its key, from its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.errors import StoreError
from ..selector.compiler import Selector, selector

SELECTOR = "x-selector"
"""The argument of a binding for the selector that messages must match."""
NOT_FROM = "x-not-from"
"""The argument of a binding for the AMQP container ID whose messages are excluded."""


MOST_BOUND_STEPS = 64
"""The maximum cost of the selectors of an exchange's bindings, without subscriptions, for each character of a message.

It is in steps of a nanosecond: the selectors are applied in the publisher's turn. A LIKE pattern with `%` before and
behind has 4 steps."""


def condition_of(arguments: Mapping[str, Any]) -> Selector | None:
    """Return the condition of a binding. Raise `StoreError` or `SelectorError` for an invalid selector."""
    text = arguments.get(SELECTOR)
    if text is None:
        return None
    if not isinstance(text, str):
        raise StoreError("binding", f"{SELECTOR} is {text!r}", "give a string")
    return selector(text)
