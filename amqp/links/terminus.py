"""The termini of a link, in proton: read as the peer asks for them, and written as they are answered."""

from __future__ import annotations

from ..native import proton_ffi as proton
from ..native.proton_ffi import Pointer, lib, text
from .link import Link
from .values import Terminus

UNSETTLED_STATE = 2
"""The durability of a terminus whose unsettled state lasts."""

_EXPIRIES = {
    int(lib.PN_EXPIRE_WITH_LINK): "link-detach",
    int(lib.PN_EXPIRE_WITH_SESSION): "session-end",
    int(lib.PN_EXPIRE_WITH_CONNECTION): "connection-close",
    int(lib.PN_EXPIRE_NEVER): "never",
}
_CODES = {name: code for code, name in _EXPIRIES.items()}


def asked_for(link: Link) -> Terminus:
    """Return the terminus that the peer requests at this side of the link."""
    pn = link.pn
    terminus = lib.pn_link_remote_source(pn) if link.sender else lib.pn_link_remote_target(pn)
    kind = int(lib.pn_terminus_get_type(terminus))
    mode = int(lib.pn_terminus_get_distribution_mode(terminus))
    return Terminus(
        address=text(lib.pn_terminus_get_address(terminus)),
        dynamic=bool(lib.pn_terminus_is_dynamic(terminus)),
        browse=mode == int(lib.PN_DIST_MODE_COPY),
        coordinator=kind == int(lib.PN_COORDINATOR),
        absent=kind == int(lib.PN_UNSPECIFIED),
        durability=int(lib.pn_terminus_get_durability(terminus)),
        expiry=_EXPIRIES[int(lib.pn_terminus_get_expiry_policy(terminus))],
        timeout_s=int(lib.pn_terminus_get_timeout(terminus)),
        capabilities=proton.symbols(lib.pn_terminus_capabilities(terminus)),
        filters=proton.encoded(lib.pn_terminus_filter(terminus)) if link.sender else b"",
        properties=proton.encoded(lib.pn_terminus_properties(terminus)),
    )


def may_resume(link: Link, terminus: Pointer) -> bool:
    """Return whether the client asks for a resumable link; *terminus* is the one at this side."""
    return (
        not link.presettled
        and int(lib.pn_link_remote_rcv_settle_mode(link.pn)) == int(lib.PN_RCV_SECOND)
        and int(lib.pn_terminus_get_durability(terminus)) == UNSETTLED_STATE
    )


def answer(link: Link, address: str | None, filters: bytes, found: Terminus | None) -> None:
    """The termini as asked for, with *address* where a dynamic node was made.

    *filters* are those that are applied; *found* stands for a source that the peer left out.
    """
    pn = link.pn
    source, target = lib.pn_link_source(pn), lib.pn_link_target(pn)
    lib.pn_terminus_copy(source, lib.pn_link_remote_source(pn))
    proton.put_encoded(lib.pn_terminus_filter(source), filters)
    lib.pn_terminus_copy(target, lib.pn_link_remote_target(pn))
    if not link.sender and link.has_source:
        lib.pn_terminus_set_type(source, lib.PN_SOURCE)
    if address is not None:
        lib.pn_terminus_set_address(source if link.sender else target, address.encode())
    own = source if link.sender else target
    if (in_force := _expiry_in_force(link)) is not None:
        lib.pn_terminus_set_expiry_policy(own, _CODES[in_force])
        lib.pn_terminus_set_timeout(own, 0)
    if found is not None:
        _fill(source, found)


def _expiry_in_force(link: Link) -> str | None:
    """Return the expiry policy in force where the one that was asked for is not (3.5.3); None where it is.

    A dynamic node goes with its link. A subscription that lasts is kept until it is closed; nothing else is kept.
    """
    asked = link.asked
    if link.resuming is not None or link.coordinator:
        return None  # it has a time of its own
    if asked.dynamic:
        return "link-detach"
    if asked.lasts:
        return "never"
    return "link-detach" if asked.timeout_s or asked.expiry == "connection-close" else None


def offers_rejected(link: Link) -> bool:
    """Return whether the source of an incoming link has the outcome `rejected`: listed, or not restricted by a list."""
    outcomes = proton.symbols(lib.pn_terminus_outcomes(lib.pn_link_remote_source(link.pn)))
    return not outcomes or "amqp:rejected:list" in outcomes


def refuse(link: Link) -> None:
    """Answer an attach that comes to nothing: a null terminus, and a detach behind it, are how that looks."""
    refused = lib.pn_link_source(link.pn) if link.sender else lib.pn_link_target(link.pn)
    lib.pn_terminus_set_type(refused, lib.PN_UNSPECIFIED)
    lib.pn_link_open(link.pn)


def _fill(source: Pointer, found: Terminus) -> None:
    """Write the fields of *found* into a source that was omitted."""
    lib.pn_terminus_set_type(source, lib.PN_SOURCE)
    lib.pn_terminus_set_address(source, (found.address or "").encode())
    lib.pn_terminus_set_durability(source, found.durability)
    lib.pn_terminus_set_expiry_policy(source, _CODES[found.expiry])
    proton.put_symbols(lib.pn_terminus_capabilities(source), found.capabilities)
