"""The priority of a link among those of its connection: whose messages go out first when not all can."""

from __future__ import annotations

from ..codec import decode
from ..codec.primitives import Malformed
from ..native import proton_ffi as proton
from ..native.proton_ffi import Pointer
from .values import DEFAULT_PRIORITY

PRIORITY = "cairnmq:priority"
"""The property of an attach: 0 to 9, highest first (router guide C46)."""


def asked_priority(properties: Pointer) -> int:
    """Return the priority that the *properties* of an attach request.

    An invalid value counts as none. A number outside 0 to 9 counts as the nearer end.
    """
    raw = proton.encoded(properties) if properties else b""
    if not raw:
        return DEFAULT_PRIORITY
    try:
        found, _ = decode.value(raw)
    except Malformed:
        return DEFAULT_PRIORITY
    asked = found.get(PRIORITY) if isinstance(found, dict) else None
    return min(max(asked, 0), 9) if isinstance(asked, int) else DEFAULT_PRIORITY
