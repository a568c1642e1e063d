"""How much of long messages may be on its way to the disk, so that small ones beside them need not wait long (F27).

What is confirmed when it is durable waits for the flush that is under way and then for its own, and both take longer
the more they write. Where nobody waits, that does not matter: `ALONE_BYTES` are a flush that costs the disk little for
each byte. Beside others a long message gets as many bytes as take as long to write as a sync takes anyhow: so a flush
with them lasts twice as long as one without, and the disk still spends half of its time on them.

What a sync takes and what a byte takes differ from disk to disk, and change with what else the disk has to do. Both
are read off the last flushes.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

ALONE_BYTES = 512 << 10
LEAST_BYTES = 64 << 10
"""As much as one piece of a long message: with less it would hardly get on."""
UNKNOWN_BYTES = 128 << 10
"""As long as the flushes tell nothing."""
RECENT_BYTES = 16 << 20
"""Others count as there until the log has grown by so much since one of them waited for it."""
_FEWEST = 16
_APART = 2
"""How many times as much the larger flushes must write as the smaller ones to be compared with them."""


def fair_bytes(flushes: Sequence[tuple[int, float]], before: int = UNKNOWN_BYTES) -> int:
    """How many bytes take as long to write as the rest of a flush, by what *flushes* wrote and the seconds they took.

    The line goes through the medians of the smaller half and of the larger half, which a few that the disk was late
    with do not move. Where they tell nothing it stays as it was *before*. Where more bytes take no longer, because the
    disk is busy with others' work, there is nothing to be gained from less.
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
