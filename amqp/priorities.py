"""The priority of a link among those of its connection: whose messages go out first when not all can."""

from __future__ import annotations

from . import decode, proton
from .codec import Malformed
from .link import DEFAULT_PRIORITY
from .proton import Pointer

PRIORITY = "cairnmq:priority"
"""The property of an attach: 0 to 9, highest first (router guide C46)."""


def asked_priority(properties: Pointer) -> int:
    """What the *properties* of an attach ask for. What is no priority counts as none, beyond the ends as the end."""
    raw = proton.encoded(properties) if properties else b""
    if not raw:
        return DEFAULT_PRIORITY
    try:
        found, _ = decode.value(raw)
    except Malformed:
        return DEFAULT_PRIORITY
    asked = found.get(PRIORITY) if isinstance(found, dict) else None
    return min(max(asked, 0), 9) if isinstance(asked, int) else DEFAULT_PRIORITY
