"""What a binding asks for beyond its key, from its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.errors import StoreError
from .exchange import Condition
from .selector import Selector

SELECTOR = "x-selector"
"""The argument of a binding whose queue wants only messages that this selector matches."""
NOT_FROM = "x-not-from"
"""The argument of a binding whose queue wants no messages from the container of that name."""


def condition_of(arguments: Mapping[str, Any]) -> Condition | None:
    """Whether a message is one of those. Raises `StoreError` or `SelectorError` for a selector that is none."""
    text = arguments.get(SELECTOR)
    if text is None:
        return None
    if not isinstance(text, str):
        raise StoreError("binding", f"{SELECTOR} is {text!r}", "say a text")
    return Selector(text).matches
