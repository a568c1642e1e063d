"""Proton's C functions, and the constants the engine compares with.

On the hot path the engine calls these directly: proton's Python wrapper objects cost twenty times as much per message.
Importing `cproton` initialises the library once and supplies the callbacks it needs.
"""

from __future__ import annotations

from typing import Any

import cproton
from cproton_ffi import ffi as ffi
from cproton_ffi import lib as lib

assert cproton.lib is lib

NULL = ffi.NULL

ACCEPTED = int(lib.PN_ACCEPTED)
REJECTED = int(lib.PN_REJECTED)
RELEASED = int(lib.PN_RELEASED)
MODIFIED = int(lib.PN_MODIFIED)
RECEIVED = int(lib.PN_RECEIVED)

LOCAL_UNINIT = int(lib.PN_LOCAL_UNINIT)
REMOTE_CLOSED = int(lib.PN_REMOTE_CLOSED)

Pointer = Any
"""A C pointer. cffi hashes and compares pointers by address, so they serve as dictionary keys while they live."""


def text(chars: Pointer) -> str | None:
    """Return a C string, None for NULL; invalid UTF-8 is replaced."""
    return None if not chars else ffi.string(chars).decode("utf-8", "replace")


def set_condition(condition: Pointer, name: str, description: str, info: bytes = b"") -> None:
    """Fill in an AMQP error; *info* is an encoded map."""
    lib.pn_condition_set_name(condition, name.encode())
    lib.pn_condition_set_description(condition, description.encode())
    if info:
        put_encoded(lib.pn_condition_info(condition), info)


def condition_text(condition: Pointer) -> str:
    """An AMQP error as `name: description`, empty if it is not set."""
    if not lib.pn_condition_is_set(condition):
        return ""
    return f"{text(lib.pn_condition_get_name(condition))}: {text(lib.pn_condition_get_description(condition)) or ''}"


def condition_parts(condition: Pointer) -> tuple[str, str, bytes]:
    """An AMQP error's name, description and info; empty where it has none."""
    name = text(lib.pn_condition_get_name(condition)) or ""
    return name, text(lib.pn_condition_get_description(condition)) or "", encoded(lib.pn_condition_info(condition))


def put_symbols(data: Pointer, symbols: tuple[str, ...]) -> None:
    """Write an array of symbols, such as capabilities."""
    lib.pn_data_put_array(data, False, lib.PN_SYMBOL)
    lib.pn_data_enter(data)
    for symbol in symbols:
        raw = symbol.encode()
        start = ffi.from_buffer("char[]", raw)
        lib.pn_data_put_symbol(data, ffi.new("pn_bytes_t *", {"size": len(raw), "start": start})[0])
    lib.pn_data_exit(data)


def encoded(data: Pointer) -> bytes:
    """Return the content of *data*, encoded; empty if *data* is empty."""
    size = int(lib.pn_data_encoded_size(data))
    if size <= 0:
        return b""
    buffer = ffi.new("char[]", size)
    return bytes(ffi.unpack(buffer, lib.pn_data_encode(data, buffer, size)))


def put_encoded(data: Pointer, encoded_value: bytes) -> None:
    """Have *data* hold an encoded value, or nothing."""
    lib.pn_data_clear(data)
    if encoded_value:
        lib.pn_data_decode(data, ffi.from_buffer("char[]", encoded_value), len(encoded_value))


def symbols(data: Pointer) -> tuple[str, ...]:
    """The symbols in *data*: one, or an array of them. Anything else counts as none."""
    found = []
    lib.pn_data_rewind(data)
    there = lib.pn_data_next(data)
    if there and lib.pn_data_type(data) == lib.PN_ARRAY:
        lib.pn_data_enter(data)
        there = lib.pn_data_next(data)
    while there and lib.pn_data_type(data) == lib.PN_SYMBOL:
        raw = lib.pn_data_get_symbol(data)
        found.append(str(ffi.unpack(raw.start, raw.size), "ascii", "replace") if raw.size else "")
        there = lib.pn_data_next(data)
    lib.pn_data_rewind(data)
    return tuple(found)
