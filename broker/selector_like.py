"""The patterns of LIKE: `%` stands for any characters, `_` for one.

A pattern is cut at its `%` into pieces. The first piece must begin the text, the last one end it, and those between
are looked for from left to right, each as early as it can be: where the earliest place fails, no later one helps, so
nothing is ever tried again. Pieces are found by `str.find`, which is linear, or, if they have a `_` inside, by
shift-and: one bit per character of the piece, one step per character of the text (Baeza-Yates and Gonnet, 1992).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Matcher = Callable[[str], bool]
_Piece = Sequence[str | None]
"""Characters; None stands for any one."""


MAX_LOOSE_PIECE = 256
"""The longest piece with `_` in it that may stand anywhere: each of its characters takes as many bits."""


class BadPattern(ValueError):
    """The pattern escapes what needs none, ends with an escape, or has too long a piece."""


def compiled(pattern: str, escape: str | None = None) -> Matcher:
    """Whether a whole text is what *pattern* says; *escape* before `%`, `_` or itself takes its meaning away."""
    pieces = _pieces(pattern, escape)
    if len(pieces) == 1:
        piece = pieces[0]
        size, is_there = len(piece), _at_place(piece)
        return lambda text: len(text) == size and is_there(text, 0)
    first, *middle, last = pieces
    size = sum(map(len, pieces))
    begins, ends, last_size = _at_place(first), _at_place(last), len(last)
    finders = [_finder(piece) for piece in middle if piece]

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

    return matches


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


def _at_place(piece: _Piece) -> Callable[[str, int], bool]:
    """Whether a text has *piece* at a place; the text is long enough."""
    runs: list[tuple[int, str]] = []
    for place, char in enumerate(piece):
        if char is None:
            continue
        if runs and runs[-1][0] + len(runs[-1][1]) == place:
            runs[-1] = (runs[-1][0], runs[-1][1] + char)
        else:
            runs.append((place, char))
    if not runs:
        return lambda text, at: True
    if len(runs) == 1:
        ((place, chars),) = runs
        return lambda text, at: text.startswith(chars, at + place)
    return lambda text, at: all(text.startswith(chars, at + place) for place, chars in runs)


def _finder(piece: _Piece) -> Callable[[str, int, int], int]:
    """Where the first *piece* between two places ends, -1 if there is none."""
    size = len(piece)
    chars = [char for char in piece if char is not None]
    if not chars:
        return lambda text, at, end: at + size if at + size <= end else -1
    if len(chars) == size:
        joined = "".join(chars)

        def find(text: str, at: int, end: int) -> int:
            found = text.find(joined, at, end)
            return -1 if found < 0 else found + size

        return find
    if size > MAX_LOOSE_PIECE:
        raise BadPattern(f"between two '%' there are at most {MAX_LOOSE_PIECE} characters if one of them is '_'")
    any_char = sum(1 << place for place, char in enumerate(piece) if char is None)
    masks = dict.fromkeys(chars, any_char)
    for place, char in enumerate(piece):
        if char is not None:
            masks[char] |= 1 << place
    found_bit = 1 << size - 1

    def shift_and(text: str, at: int, end: int) -> int:
        state = 0
        for place in range(at, end):
            state = (state << 1 | 1) & masks.get(text[place], any_char)
            if state & found_bit:
                return place + 1
        return -1

    return shift_and
