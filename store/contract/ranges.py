"""Access to a range of a content that is stored in pieces, the same in every store."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...base.errors import StoreError


def part_of(
    message_id: int, offset: int, length: int, sizes: Callable[[], Iterable[int]], load: Callable[[int, int], bytes]
) -> bytes:
    """*length* bytes from *offset* on; only the pieces they lie in are loaded, one at a time (checklist E31).

    *sizes* gives those of the pieces in bytes, *load* the piece of a message's number.
    """
    if offset < 0 or length < 0:
        raise StoreError(f"message {message_id}", f"it has no {length} bytes at {offset}")
    found = bytearray()
    begin = 0
    for number, size_bytes in enumerate(sizes()):
        if not length or begin >= offset + length:
            break
        if begin + size_bytes > offset:
            piece = memoryview(load(message_id, number))
            found += piece[max(0, offset - begin) : offset + length - begin]
        begin += size_bytes
    return bytes(found)
