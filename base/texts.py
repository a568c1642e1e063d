"""Texts for people: numbers with their nouns, and content of others as text."""

from __future__ import annotations

_ALLOWED = frozenset("\t\n\r\f\x1b")
_HEX_BYTES = 8


def counted(count: int, noun: str, plural: str = "", *, spec: str = "") -> str:
    """Return a number with its noun, such as `1 message` and `2 messages`.

    *plural* is needed unless it ends in -s; *spec* is the format of the number.
    """
    return f"{count:{spec}} {noun if count == 1 else plural or f'{noun}s'}"


def text_in(data: bytes, *, is_cut: bool = False) -> str | None:
    """*data* as text if it is UTF-8 without control characters but tabs, line ends, form feeds and escapes; else None.

    *is_cut*: its last character may be incomplete, and is left out then.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.reason != "unexpected end of data":
            return None
        text = data[: error.start].decode()
    if text.isprintable():
        return text
    return None if any((ord(char) < 32 and char not in _ALLOWED) or char == "\x7f" for char in text) else text


def bytes_words(data: bytes, size_bytes: int | None = None) -> str:
    """Bytes that are no text: how many, and the first ones in hexadecimal digits."""
    size = len(data) if size_bytes is None else size_bytes
    more = "..." if size > _HEX_BYTES else ""
    return f"{counted(size, 'byte')}, hex {data[:_HEX_BYTES].hex()}{more}" if size else "empty"
