"""The number of bytes of long messages in a flush, so that small messages beside them need not wait long (F27).

A message that is confirmed when it is durable waits for the current flush and then for its own, and both take longer
the more they write. Without other waiting messages that does not matter: a flush of `ALONE_BYTES` costs the disk little
for each byte. Beside others a long message gets as many bytes as take as long to write as a sync. So a flush with them
lasts twice as long as one without, and the disk still spends half of its time on them.

The durations of a sync and of a byte differ between disks, and vary with the other load of the disk. Both are derived
from the last flushes.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

ALONE_BYTES = 512 << 10
LEAST_BYTES = 64 << 10
"""The size of one piece of a long message, the least that makes progress."""
UNKNOWN_BYTES = 128 << 10
"""The bytes while the flushes do not allow an estimate."""
RECENT_BYTES = 16 << 20
"""The growth of the log after which an action that waited for it no longer counts."""
_FEWEST = 16
_APART = 2
"""The least ratio of the sizes of larger and smaller flushes that are compared."""


def fair_bytes(flushes: Sequence[tuple[int, float]], before: int = UNKNOWN_BYTES) -> int:
    """Return the number of bytes that take as long to write as a sync; *flushes*: bytes and seconds of each flush.

    The line goes through the medians of the smaller half and of the larger half, which a few slow flushes do not move.
    Without an estimate the result is *before*. Where more bytes take no longer, because the disk is busy with other
    work, fewer bytes would gain nothing.
    """
    if len(flushes) < _FEWEST:
        return before
    ordered = sorted(flushes)
    half = len(ordered) // 2
    smaller, larger = ordered[:half], ordered[half:]
    little, much = median([size for size, _ in smaller]), median([size for size, _ in larger])
    if much < _APART * little:
        return before
    quick_s, slow_s = median([took_s for _, took_s in smaller]), median([took_s for _, took_s in larger])
    byte_s = (slow_s - quick_s) / (much - little)
    sync_s = quick_s - byte_s * little
    if byte_s * ALONE_BYTES <= sync_s:
        return ALONE_BYTES
    return max(LEAST_BYTES, int(sync_s / byte_s))
