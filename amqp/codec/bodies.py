"""The body of a message as text, for people who look at messages."""

from __future__ import annotations

from ...base.texts import text_in
from . import decode, sections
from .primitives import Malformed
from .sections import DATA, VALUE, Sections

_STRINGS = (0xA1, 0xB1)


def body_text(content: bytes, found: Sections | None = None, *, complete: bool = True) -> str | None:
    """The text of the body: a value that is a string, or data that are text (`base.texts`). None for anything else.

    *found*: the sections of *content*, where they are known. *complete*: *content* is no beginning of a message only.
    """
    try:
        found = found or sections.index(content, complete=complete)
        if not found.body:
            return None
        first = found.body[0]
        if first.code == VALUE and content[first.value] in _STRINGS:
            text: str = decode.value(content, first.value, plain=True)[0]
            return text
        if first.code != DATA:
            return None
        return text_in(b"".join(data_in(content, section.value, section.end) for section in found.body))
    except (Malformed, IndexError):
        return None


def data_in(content: bytes, value: int, end: int) -> bytes:
    """The bytes of a data section, whose value begins and ends there."""
    return content[value + (2 if content[value] == 0xA0 else 5) : end]
