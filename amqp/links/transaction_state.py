"""Deliveries in transactions: their states are read from proton and written to it as encoded lists.

States are examined on connections with a link to the coordinator, and on those that sent a transactional state without
one, which names an unknown transaction. A transfer then costs one check of its state, whose bytes are compared with
those of the previous transfer. A state is decoded once for each run of transfers in the same transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ..codec.transaction_types import DECLARED, TRANSACTIONAL, read_state, write_id, write_state
from ..native import proton_ffi as proton
from ..native.proton_ffi import ACCEPTED, REJECTED, RELEASED, Pointer, ffi, lib
from . import settlement
from .credit import grant
from .link import Acquired, Link
from .stream_cursor import StreamCursor
from .values import Content, Error, Outcome

CAPABILITIES = (
    "amqp:local-transactions",
    "amqp:distributed-transactions",
    "amqp:multi-txns-per-ssn",
    "amqp:multi-ssns-per-txn",
)

BUFFER_BYTES = 128
_EMPTY_ID = b"empty"
"""The ID in place of one without octets, which no transaction has: the driver reads that as no transaction."""

_Came = TypeVar("_Came")


def acquired(txn_id: bytes, content: bytes | Content | StreamCursor) -> Acquired:
    """A message that is to go out in that transaction."""
    return Acquired(content, write_id(txn_id))


def begin(delivery: Pointer, state: bytes) -> None:
    """An outgoing delivery is in a transaction. Before anything of it is sent."""
    said = lib.pn_data(0)
    lib.pn_data_decode(said, state, len(state))
    lib.pn_data_copy(lib.pn_disposition_data(lib.pn_delivery_local(delivery)), said)
    lib.pn_delivery_update(delivery, TRANSACTIONAL)
    lib.pn_data_free(said)


def recall(link: Link, tags: Collection[Any]) -> None:
    """Recall outgoing messages with these tags, sent or not. Completely sent ones are released.

    This may leave credit of which the driver is not notified.
    """
    if link.sending is not None and link.sending.tag in tags:
        lib.pn_delivery_abort(link.sending.delivery)
        link.sending = None
        link.sent += 1
    waiting = [message for message in link.outbox if message[0] not in tags]
    link.sent += len(link.outbox) - len(waiting)
    link.outbox = deque(waiting)
    for delivery in [delivery for delivery, tag in link.unsettled.items() if tag in tags]:
        del link.unsettled[delivery]
        lib.pn_delivery_update(delivery, RELEASED)
        lib.pn_delivery_settle(delivery)


def offer(target: Pointer) -> None:
    """Write the capabilities of the coordinator to the answer to an attach."""
    capabilities = lib.pn_terminus_capabilities(target)
    lib.pn_data_clear(capabilities)
    proton.put_symbols(capabilities, CAPABILITIES)


def note_transfer(link: Link, delivery: Pointer, number: int, buffer: Pointer) -> None:
    """The *number*-th fragment of the inbox came with *delivery*: note if another transaction begins with it.

    *buffer* has room for `BUFFER_BYTES`.
    """
    state = _state_of(delivery, buffer) if lib.pn_delivery_remote_state(delivery) == TRANSACTIONAL else b""
    if state != link.transaction:
        link.transaction = state
        link.runs.append((number, state))


def runs(link: Link, fragments: Sequence[_Came]) -> Iterator[tuple[bytes, Sequence[_Came]]]:
    """Yield runs of *fragments*, each with the id of its transaction, empty for none.

    The next read continues the last run.
    """
    marks = link.runs
    link.runs = [(0, link.transaction)] if link.transaction else []
    if marks[0][0]:
        yield b"", fragments[: marks[0][0]]
    ends = [*(start for start, _ in marks[1:]), len(fragments)]
    for (start, state), end in zip(marks, ends, strict=True):
        if start < end:
            yield (read_state(state).txn_id or _EMPTY_ID) if state else b"", fragments[start:end]


def note_outcome(link: Link, delivery: Pointer, tag: Any, *, settled: bool) -> None:
    """The outcome of a delivery, from its receiver, for the commit of a transaction.

    The delivery stays the link's until either side settles it.
    """
    state = read_state(_state_of(delivery, ffi.new("char[]", BUFFER_BYTES)))
    outcome = Outcome(None if settled else delivery, tag, state.outcome, state.failed, state.undeliverable)
    error = None if state.error is None else Error(*state.error)
    link.provisional.append((state.txn_id, outcome._replace(error=error, annotations=state.annotations)))
    if settled:
        del link.unsettled[delivery]
        lib.pn_delivery_settle(delivery)


def declare(link: Link, delivery: Pointer, txn_id: bytes, credit: int) -> None:
    """Answer a declare."""
    _update(link, (delivery,), DECLARED, write_id(txn_id), credit)


def accept(link: Link, txn_id: bytes, deliveries: Iterable[Pointer], credit: int) -> None:
    """Incoming deliveries will be accepted with the commit. They are settled at once, as nothing more is to be said."""
    _update(link, deliveries, TRANSACTIONAL, write_state(txn_id, ACCEPTED), credit)


def reject(
    link: Link, txn_id: bytes, deliveries: Iterable[Pointer], credit: int, condition: str, description: str,
    info: bytes = b"",
) -> None:  # fmt: skip
    """Incoming deliveries are rejected, which keeps the transaction from being committed; *info* is an encoded map."""
    _update(link, deliveries, TRANSACTIONAL, write_state(txn_id, REJECTED, condition, description, info), credit)


def settle(link: Link, deliveries: Iterable[tuple[Pointer, int, Any]]) -> None:
    """Apply final outcomes of outgoing deliveries: settle those that the receiver has not settled meanwhile.

    A delivery that the receiver settled no longer exists, and another one may have its address: the tags are compared.
    """
    if link.closed:
        return
    for delivery, state, tag in deliveries:
        if link.unsettled.get(delivery) is tag:
            del link.unsettled[delivery]
            lib.pn_delivery_update(delivery, state)
            lib.pn_delivery_settle(delivery)


def _update(link: Link, deliveries: Iterable[Pointer], state: int, fields: bytes, credit: int) -> None:
    if link.closed:
        return
    said = lib.pn_data(0)
    lib.pn_data_decode(said, fields, len(fields))
    copy, data_of, local_of = lib.pn_data_copy, lib.pn_disposition_data, lib.pn_delivery_local
    update, settle = lib.pn_delivery_update, lib.pn_delivery_settle
    for delivery in deliveries:
        copy(data_of(local_of(delivery)), said)
        update(delivery, state)
        if link.settles_second:
            settlement.wait_for_peer(link, delivery)
        else:
            settle(delivery)
    lib.pn_data_free(said)
    grant(link, credit)


def _state_of(delivery: Pointer, buffer: Pointer) -> bytes:
    """The list that a delivery's state brought."""
    data = lib.pn_disposition_data(lib.pn_delivery_remote(delivery))
    size = lib.pn_data_encode(data, buffer, BUFFER_BYTES)
    return bytes(ffi.unpack(buffer, size)) if size >= 0 else proton.encoded(data)
