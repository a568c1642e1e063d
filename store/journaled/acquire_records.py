"""The payload of an acquire record, a note of the messages that a link acquired.

offset  size   field
     0   8 * n  the IDs of the messages, in the order of acquisition; n is the `extra` of the record
 8 * n   2      size of the container ID in bytes
     .   .      the AMQP container ID of the client, UTF-8
     .   .      the name of the link, UTF-8

With the flag ENQUEUE the record is about messages that a consumer lost, and that are on their queue again: the
container ID is empty, and in the place of the link is the reason.

Recovery ignores it, compaction copies none, and it pins nothing. While a broker records acquisitions, every block has
the flag `journal.block.ACQUISITIONS`. A block without the flag therefore means that no message was acquired while it
was gathered, or that acquisitions were not recorded.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple

from ...journal.format.record import MAX_PAYLOAD_BYTES

MAX_NAME_BYTES = 1024
"""Longer names are cut."""
_LENGTH_BYTES = 2
MOST_MESSAGES = (MAX_PAYLOAD_BYTES - _LENGTH_BYTES - 2 * MAX_NAME_BYTES) // 8
"""The maximum number of messages in one record."""


class Acquired(NamedTuple):
    """The decoded payload of an acquire record."""

    message_ids: array[int]
    container: str
    link: str


def taker(container: str, link: str) -> bytes:
    """Return the link of a client for `encode`."""
    first, second = (name.encode(errors="replace")[:MAX_NAME_BYTES] for name in (container, link))
    return len(first).to_bytes(_LENGTH_BYTES, "little") + first + second


def encode(taker: bytes, message_ids: Iterable[int]) -> bytes:
    """The payload; at most `MOST_MESSAGES`."""
    return array("Q", message_ids).tobytes() + taker


def decode(payload: bytes, count: int) -> Acquired:
    """Decode the *payload* of an acquire record of *count* messages. Raises `ValueError` if it is too short."""
    ids, names = payload[: 8 * count], payload[8 * count + _LENGTH_BYTES :]
    size = int.from_bytes(payload[8 * count : 8 * count + _LENGTH_BYTES], "little")
    if 8 * count + _LENGTH_BYTES + size > len(payload):
        raise ValueError(f"{len(payload)} bytes hold no {count} messages and a container id")
    return Acquired(array("Q", ids), names[:size].decode(errors="replace"), names[size:].decode(errors="replace"))
