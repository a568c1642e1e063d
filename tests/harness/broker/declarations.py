"""Requests to declare and to discharge transactions on a broker in memory."""

from __future__ import annotations


def declare(xid: bytes = b"") -> bytes:
    field = b"\xa0" + bytes((len(xid),)) + xid if xid else b"\x40"
    return b"\x00\x53\x77\x00\x53\x31\xc0" + bytes((1 + len(field), 1)) + field


def discharge(txn_id: bytes, *, fail: bool) -> bytes:
    fields = b"\xa0" + bytes((len(txn_id),)) + txn_id + (b"\x41" if fail else b"\x42")
    return b"\x00\x53\x77\x00\x53\x32\xc0" + bytes((1 + len(fields), 2)) + fields
