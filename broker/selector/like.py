"""The patterns of LIKE: `%` stands for any characters, `_` for one.

A pattern is split at its `%` into pieces. The first piece must begin the text, the last one end it, and those between
are searched from left to right, each as early as possible. If the earliest place fails, no later one helps, so there is
no backtracking. Pieces of contiguous characters are found by `str.find`, which is linear. Others are found by `re` in a
short text. In a longer text numpy compares one character of the piece at many places at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Matcher = Callable[[str], bool]
_Piece = Sequence[str | None]
"""Characters; None stands for any one."""


MAX_LOOSE_PIECE = 256
"""The longest piece with `_` in it that may stand anywhere: each of its characters is compared on its own."""
SHORT_TEXT = 64
"""The length of a text up to which `re` is the fastest algorithm."""
AT_ONCE = 8192
"""The number of places of a longer text that are compared at once."""
FIND_STEPS = 4
"""The cost of `str.find` per character, at worst, in nanoseconds (measured)."""


class Pattern(NamedTuple):
    """A compiled pattern."""

    matches: Matcher
    """The function that returns whether a complete text matches the pattern."""
    steps: int
    """The maximum steps for a character of the text; a step is about a nanosecond."""

    def __call__(self, text: str) -> bool:
        return self.matches(text)


class BadPattern(ValueError):
    """The pattern escapes a character that needs no escape, ends with an escape, or has too long a piece."""


def compiled(pattern: str, escape: str | None = None) -> Pattern:
    """Compile *pattern*, where *escape* before `%`, `_` or itself makes it literal. Raise `BadPattern`."""
    pieces = _pieces(pattern, escape)
    if len(pieces) == 1:
        piece = pieces[0]
        size, is_there = len(piece), _at_place(piece)
        return Pattern(lambda text: len(text) == size and is_there(text, 0), 0)
    first, *middle, last = pieces
    size = sum(map(len, pieces))
    begins, ends, last_size = _at_place(first), _at_place(last), len(last)
    finders = [_finder(piece) for piece in middle if piece]
    steps = max([_steps(piece) for piece in middle if piece], default=0)  # they share the text

    def matches(text: str) -> bool:
        end = len(text) - last_size
        if len(text) < size or not begins(text, 0) or not ends(text, end):
            return False
        at = len(first)
        for find in finders:
            at = find(text, at, end)
            if at < 0:
                return False
        return True

    return Pattern(matches, steps)


def _pieces(pattern: str, escape: str | None) -> list[_Piece]:
    pieces: list[list[str | None]] = [[]]
    escaped = False
    for char in pattern:
        if escaped:
            if char not in ("%", "_", escape):
                raise BadPattern(f"{escape!r} escapes {char!r}, which needs none")
            pieces[-1].append(char)
            escaped = False
        elif char == escape:
            escaped = True
        elif char == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if char == "_" else char)
    if escaped:
        raise BadPattern(f"{escape!r} at the end escapes nothing")
    return list(pieces)


def _runs(piece: _Piece) -> list[tuple[int, str]]:
    """Return the runs of adjacent characters of *piece*, each with its place."""
    runs: list[tuple[int, str]] = []
    for place, char in enumerate(piece):
        if char is None:
            continue
        if runs and runs[-1][0] + len(runs[-1][1]) == place:
            runs[-1] = (runs[-1][0], runs[-1][1] + char)
        else:
            runs.append((place, char))
    return runs


def _steps(piece: _Piece) -> int:
    """Return the maximum steps to search for *piece*, per character of the text."""
    return FIND_STEPS if len(_runs(piece)) < 2 else FIND_STEPS + len(piece) // 4


def _at_place(piece: _Piece) -> Callable[[str, int], bool]:
    """Return a function that returns whether a text has *piece* at a place; the text is long enough."""
    runs = _runs(piece)
    if not runs:
        return lambda text, at: True
    if len(runs) == 1:
        ((place, chars),) = runs
        return lambda text, at: text.startswith(chars, at + place)
    return lambda text, at: all(text.startswith(chars, at + place) for place, chars in runs)


def _finder(piece: _Piece) -> Callable[[str, int, int], int]:
    """Return a function that returns the end of the first *piece* between two places of a text, or -1."""
    size = len(piece)
    runs = _runs(piece)
    if not runs:
        return lambda text, at, end: at + size if at + size <= end else -1
    if len(runs) == 1:
        ((before, joined),) = runs
        behind = size - before

        def find(text: str, at: int, end: int) -> int:
            found = text.find(joined, at + before, end - behind + len(joined))
            return -1 if found < 0 else found + behind

        return find
    if size > MAX_LOOSE_PIECE:
        raise BadPattern(f"between two '%' there are at most {MAX_LOOSE_PIECE} characters if one of them is '_'")
    codes = [(place, ord(char)) for place, char in enumerate(piece) if char is not None]
    search_short = re.compile("".join("." if char is None else re.escape(char) for char in piece), re.DOTALL).search

    def search(text: str, at: int, end: int) -> int:
        if end - at > SHORT_TEXT:
            return _found_at_once(text, at, end, codes, size)
        match = search_short(text, at, end)
        return -1 if match is None else match.end()

    return search


def _found_at_once(text: str, at: int, end: int, codes: Sequence[tuple[int, int]], size: int) -> int:
    """Return the end of the first piece of *size* characters between two places, or -1.

    *codes*: places in the piece, and the code points at these places.
    """
    while at + size <= end:
        part = text[at : min(end, at + AT_ONCE + size - 1)]
        there = np.frombuffer(part.encode("utf-32-le", "surrogatepass"), np.uint32)
        count = len(part) - size + 1
        (place, code), *others = codes
        hits = there[place : place + count] == code
        for place, code in others:
            hits &= there[place : place + count] == code
        first = int(hits.argmax())
        if hits[first]:
            return at + first + size
        at += count
    return -1
