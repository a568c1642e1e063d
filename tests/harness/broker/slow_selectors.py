"""A reference implementation of LIKE, for comparisons."""

from __future__ import annotations

from functools import cache


def slowly_like(text: str, pattern: str) -> bool:
    @cache
    def rest(at: int, of: int) -> bool:
        if of == len(pattern):
            return at == len(text)
        if pattern[of] == "%":
            return any(rest(later, of + 1) for later in range(at, len(text) + 1))
        return at < len(text) and pattern[of] in ("_", text[at]) and rest(at + 1, of + 1)

    return rest(0, 0)
