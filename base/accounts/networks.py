"""The networks that limits of clients apply to."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network

_PREFIX_BITS = 64
"""The prefix length for IPv6: one subscriber usually has all addresses of a network of this size."""


def network_of(host: str) -> str:
    """Return the network that limits apply to for *host*: its /64 for IPv6, otherwise *host* itself.

    *host* may have brackets and a zone. An IPv4 address mapped to IPv6 counts as IPv4.
    """
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((int(address), _PREFIX_BITS), strict=False))
