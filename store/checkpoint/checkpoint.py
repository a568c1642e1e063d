"""A checkpoint: the message map as of an LSN, so that recovery reads only the log after that LSN.

It is taken beside the traffic, a few pages or messages at a step, so it is not a snapshot of one point in time: an
entry may contain effects of later records. That is harmless: records can be applied twice (`state.State`). It is
committed only when all records that its entries contain are durable: no message may exist only in the checkpoint.

entry           key                  value, behind a checksum that binds it to the key
meta            "m"                  JSON: identity of the log, and the block where recovery continues
page            "p", slot            the plain messages whose IDs lie in a slot, see `_encode_page`
odd message     "o", message id      numbers, see `_encode_detailed`
transactions    "t"                  JSON, see `Outcomes.encode`
cut queues      "c"                  JSON, see `Cuts.encode`
ends            "e", slot            numbers: the count of pairs; the pairs: a slot where records here end others, and
                                     their count; the slots from which records here were copied

Slots and ids are eight bytes, big-endian; numbers in values are little-endian.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import UUID

import numpy as np

from ..message_map.message_entry import DetailedMessage
from ..message_map.state import State
from .checkpoint_file import BadCheckpoint, sealed, unsealed

FORMAT = 1
META = b"m"
TRANSACTIONS = b"t"
CUTS = b"c"
_COUNTS = struct.Struct("<II")
_NO_LAST = (1 << 64) - 1
Changes = dict[bytes, bytes | None]


@dataclass
class Meta:
    """Metadata of a checkpoint."""

    log_uuid: UUID
    container_bytes: int
    block_lsn: int
    """The last block before `end_lsn`, and its checksum: so a log that was changed behind our back is noticed."""
    block_crc: int
    end_lsn: int
    """The LSN from which the log must be replayed."""

    def encode(self, entries: int) -> bytes:
        """*entries*: how many there are beside this one."""
        fields = vars(self) | {"log_uuid": str(self.log_uuid), "format": FORMAT, "entries": entries}
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, body: bytes, entries: int) -> Meta:
        fields: dict[str, Any] = json.loads(body)
        if fields.pop("format") != FORMAT:
            raise BadCheckpoint("it is of another format")
        if fields.pop("entries") != entries:
            raise BadCheckpoint("entries are missing")
        return cls(UUID(fields.pop("log_uuid")), **fields)


def meta_of(entries: dict[bytes, bytes]) -> Meta:
    """Remove the metadata from *entries* and return it. Raises `BadCheckpoint`."""
    value = entries.pop(META, None)
    if value is None:
        raise BadCheckpoint("it was never finished")
    return Meta.decode(unsealed(META, value), len(entries))


# ---- from the state -------------------------------------------------------------------------------------------------


def pages(state: State, slots: list[int], at_most: int) -> Iterator[Changes]:
    """Entries for *slots*, in portions of about *at_most* messages, or of so many slots."""
    changes: Changes = {}
    count = 0
    for slot in slots:
        key = _key(b"p", slot)
        page = state.pages.get(slot)
        changes[key] = None if page is None else sealed(key, _encode_page(state, slot, page))
        count += 1 if page is None else len(page)
        if count >= at_most:
            yield changes
            changes = {}
            count = 0
    yield changes


def particulars(state: State, at_most: int) -> Iterator[Changes]:
    """Entries for the odd messages that changed until this begins, in portions of *at_most*.

    To be taken when no page is left: of what changes meanwhile the pages have all that stands before the checkpoint.
    """
    detailed, state.changed_detailed = state.changed_detailed, set()
    for some in _portions(detailed, at_most):
        yield dict([_detailed_entry(state, message_id) for message_id in some])


def ends(state: State, at_most: int) -> Iterator[Changes]:
    """Entries for the ends that changed until this begins, in portions of *at_most*.

    To be taken last: what a purge ended is here if the purge is not in the entries of `rest`. Messages that it ends
    later were on its queue when their entries were taken.
    """
    changed, state.pins.changed_tombstones = state.pins.changed_tombstones, set()
    for some in _portions(changed, at_most):
        yield dict([_ends_entry(state, slot) for slot in some])


def rest(state: State) -> Changes:
    """Entries for all else that changed; it is taken for unchanged from here on."""
    changes: Changes = {}
    if state.outcomes.changed:
        changes[TRANSACTIONS] = sealed(TRANSACTIONS, state.outcomes.encode())
    if state.cuts.changed:
        body = state.cuts.encode()
        changes[CUTS] = sealed(CUTS, body) if body else None
    state.outcomes.changed = state.cuts.changed = False
    return changes


def _portions(numbers: Iterable[int], at_most: int) -> Iterator[list[int]]:
    left = iter(numbers)
    while some := list(islice(left, at_most)):
        yield some


def _detailed_entry(state: State, message_id: int) -> tuple[bytes, bytes | None]:
    key = _key(b"o", message_id)
    message = state.detailed.get(message_id)
    return key, None if message is None else sealed(key, _encode_detailed(message))


def _ends_entry(state: State, slot: int) -> tuple[bytes, bytes | None]:
    key = _key(b"e", slot)
    pairs = state.pins.tombstones.get(slot)
    if pairs is None:
        return key, None
    flat = [number for pair in pairs.items() for number in pair]
    superseded = sorted(state.pins.superseded.get(slot, ()))
    return key, sealed(key, array("Q", [len(pairs), *flat, *superseded]).tobytes())


def _key(kind: bytes, number: int) -> bytes:
    return kind + number.to_bytes(8, "big")


def _encode_page(state: State, slot: int, page: dict[int, int]) -> bytes:
    """Counts of messages and of moved ones; offsets of ids in the slot; values; offsets and places of moved ones."""
    start = state.start_of(slot)
    ids = np.fromiter(page.keys(), np.uint64, len(page))
    values = np.fromiter(page.values(), np.uint64, len(page))
    moved = [(message_id, state.moved[message_id]) for message_id in page if message_id in state.moved]
    return b"".join(
        (
            _COUNTS.pack(len(page), len(moved)),
            (ids - np.uint64(start)).astype("<u4").tobytes(),
            values.astype("<u8").tobytes(),
            np.array([message_id - start for message_id, _ in moved], "<u4").tobytes(),
            np.array([lsn for _, lsn in moved], "<u8").tobytes(),
        )
    )


def _encode_detailed(message: DetailedMessage) -> bytes:
    last = _NO_LAST if message.last is None else message.last
    numbers = [message.start, message.size_bytes, last, len(message.pieces), len(message.queues)]
    for number, (lsn, size_bytes) in message.pieces.items():
        numbers += number, lsn, size_bytes
    for queue_id, (position, lsn) in message.queues.items():
        numbers += queue_id, position, lsn
    return array("Q", numbers).tobytes()


# ---- to the state ---------------------------------------------------------------------------------------------------


def restore(state: State, entries: dict[bytes, bytes]) -> None:
    """Put *entries*, of the functions above, into the empty *state*. Raises `BadCheckpoint`."""
    for key, value in entries.items():
        body, number = unsealed(key, value), int.from_bytes(key[1:], "big")
        if key[:1] == b"p":
            _restore_page(state, number, body)
        elif key == TRANSACTIONS:
            state.outcomes.decode(body)
        elif key == CUTS:
            state.cuts.decode(body)
        elif key[:1] == b"o":
            state.detailed[number] = _decode_detailed(array("Q", body))
        elif key[:1] == b"e":
            numbers = array("Q", body)
            pairs = numbers[1 : 1 + 2 * numbers[0]]
            ends = dict(zip(pairs[::2], pairs[1::2], strict=True))
            state.pins.restore_ends(number, ends, set(numbers[1 + 2 * numbers[0] :]))
    for message_id in state.detailed:  # it may have been plain when its page was taken
        state.forget_plain(message_id)


def _restore_page(state: State, slot: int, body: bytes) -> None:
    count, moved = _COUNTS.unpack_from(body)
    start = state.start_of(slot)
    at = _COUNTS.size
    ids = np.frombuffer(body, "<u4", count, at).astype(np.uint64) + np.uint64(start)
    values = np.frombuffer(body, "<u8", count, at + 4 * count)
    state.restore_page(slot, ids, values)
    at += 12 * count
    offsets = np.frombuffer(body, "<u4", moved, at).astype(np.uint64) + np.uint64(start)
    places = np.frombuffer(body, "<u8", moved, at + 4 * moved)
    state.moved.update(zip(offsets.tolist(), places.tolist(), strict=True))


def _decode_detailed(numbers: array[int]) -> DetailedMessage:
    message = DetailedMessage()
    message.start, message.size_bytes, last, pieces, queues = numbers[:5]
    message.last = None if last == _NO_LAST else last
    at = 5
    for number, lsn, size_bytes in _triples(numbers[at : at + 3 * pieces]):
        message.pieces[number] = (lsn, size_bytes)
    at += 3 * pieces
    for queue_id, position, lsn in _triples(numbers[at : at + 3 * queues]):
        message.queues[queue_id] = (position, lsn)
    return message


def _triples(numbers: array[int]) -> Iterator[tuple[int, int, int]]:
    return zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
