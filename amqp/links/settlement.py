"""Settlement of deliveries, in batches. On a closed link, no delivery is settled.

The settlement of incoming deliveries returns *credit* to the peer.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..native import proton_ffi as proton
from ..native.proton_ffi import MODIFIED, REJECTED, Pointer, lib, set_condition
from .credit import grant
from .link import Link
from .values import Answer, Error, Outcome


def is_unasked(link: Link, delivery: Pointer) -> bool:
    """Return whether the peer has sent *delivery*, on a link on which it receives.

    Proton accepts it, holds it as long as the link exists, and would send it back. A delivery of this side has an
    outcome or is on its way; an aborted one may still get an outcome.
    """
    if delivery in link.unsettled or (link.sending is not None and link.sending.delivery == delivery):
        return False
    if lib.pn_delivery_remote_state(delivery) or lib.pn_delivery_settled(delivery):
        return bool(lib.pn_delivery_pending(delivery)) and not lib.pn_delivery_aborted(delivery)
    return True


def settle(link: Link, deliveries: Iterable[Pointer], outcome: int, credit: int) -> None:
    """Settle incoming deliveries with an outcome that has no fields."""
    if link.closed:
        return
    update, settle = lib.pn_delivery_update, lib.pn_delivery_settle
    if link.settles_second:
        for delivery in deliveries:
            update(delivery, outcome)
            wait_for_peer(link, delivery)
        grant(link, credit)
        return
    for delivery in deliveries:
        update(delivery, outcome)
        settle(delivery)
    if link.excess_messages:
        grant(link, credit)
    else:  # by hand: it is what follows most messages
        lib.pn_link_flow(link.pn, credit)
        link.credit += credit


def wait_for_peer(link: Link, delivery: Pointer) -> None:
    """Wait for the peer to settle *delivery*, which has its outcome; the peer may have done so already."""
    link.awaiting_peer_settle[delivery] = None
    if lib.pn_delivery_settled(delivery):
        answered(link, delivery)


def answered(link: Link, delivery: Pointer) -> None:
    """Settle *delivery*, which the peer has settled after it received the outcome, and grant the deferred credit."""
    if delivery in link.awaiting_peer_settle:
        del link.awaiting_peer_settle[delivery]
        if link.routed is not None:
            link.routed(delivery)
        if link.resuming is not None:
            link.resuming.settled(delivery)
        lib.pn_delivery_settle(delivery)
        if link.deferred_credit:
            link.deferred_credit -= 1
            lib.pn_link_flow(link.pn, 1)
            link.credit += 1


def reject(
    link: Link, deliveries: Iterable[Pointer], credit: int, condition: str, description: str, info: bytes = b""
) -> None:
    """Reject incoming deliveries with an error; *info* is an encoded map."""
    error = Error(condition, description, info)
    tell(link, [Answer(delivery, REJECTED, error=error) for delivery in deliveries], credit)


def tell(link: Link, answers: Iterable[Answer], credit: int) -> None:
    """Incoming deliveries have the outcomes that their receivers gave (C12, C58); those that are settled, are."""
    if link.closed:
        return
    for delivery, state, failed, undeliverable, error, its_annotations, settled in answers:
        local = lib.pn_delivery_local(delivery)
        if error is not None:
            set_condition(lib.pn_disposition_condition(local), *error)
        lib.pn_disposition_set_failed(local, failed)
        lib.pn_disposition_set_undeliverable(local, undeliverable)
        if its_annotations:
            proton.put_encoded(lib.pn_disposition_annotations(local), its_annotations)
        lib.pn_delivery_update(delivery, state)
        if not settled:
            continue
        if link.settles_second:
            wait_for_peer(link, delivery)
        else:
            lib.pn_delivery_settle(delivery)
    grant(link, credit)


def forget(link: Link, deliveries: Iterable[Pointer], credit: int) -> None:
    """Incoming deliveries that want no outcome are done."""
    if link.closed:
        return
    for delivery in deliveries:
        lib.pn_delivery_settle(delivery)
    grant(link, credit)


def confirm(link: Link, deliveries: Iterable[tuple[Pointer, int]]) -> None:
    """Outgoing deliveries are settled with the outcome their receiver gave, now that it is durable."""
    if link.closed:
        return
    for delivery, state in deliveries:
        link.unsettled.pop(delivery, None)
        lib.pn_delivery_update(delivery, state)
        lib.pn_delivery_settle(delivery)


def in_detail(outcome: Outcome, disposition: Pointer) -> Outcome:
    """Return *outcome* with the details of its state."""
    if outcome.state == MODIFIED:
        return outcome._replace(
            failed=bool(lib.pn_disposition_is_failed(disposition)),
            undeliverable=bool(lib.pn_disposition_is_undeliverable(disposition)),
            annotations=proton.encoded(lib.pn_disposition_annotations(disposition)),
        )
    if outcome.state == REJECTED:
        condition = lib.pn_disposition_condition(disposition)
        if lib.pn_condition_is_set(condition):
            return outcome._replace(error=Error(*proton.condition_parts(condition)))
    return outcome
