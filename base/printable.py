"""Text that comes from outside, made safe for a terminal, a spreadsheet, and a log with one record per line."""

from __future__ import annotations

FORMULA = ("=", "+", "-", "@", "\t", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""The first characters of texts that a spreadsheet may evaluate."""


def printable(text: str) -> str:
    """*text* with every character escaped that a terminal or a log could interpret.

    These are control characters, line and paragraph separators, bidirectional controls and other format characters,
    spaces other than U+0020, surrogates, and code points that are not assigned.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def printable_json(text: str) -> str:
    """*text*, a JSON document, with the same characters escaped in the way of JSON; line feeds stay.

    Outside of its strings a document has no such character but a line feed.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _json_escape(char) for char in text)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
