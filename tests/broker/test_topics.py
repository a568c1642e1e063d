"""Topic patterns match as their definition says, and no pattern makes them slow."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from cairnmq.broker.topics import Topics

WORDS = st.sampled_from(["a", "b", "*", "#", ""])
KEYS = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=6).map(".".join)
PATTERNS = st.lists(WORDS, max_size=6).map(".".join)


def matches(pattern: list[str], key: list[str]) -> bool:
    """What a pattern means, word by word."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return matches(pattern[1:], key) or (bool(key) and matches(pattern, key[1:]))
    return bool(key) and pattern[0] in ("*", key[0]) and matches(pattern[1:], key[1:])


def words(text: str) -> list[str]:
    return text.split(".") if text else []


@given(st.lists(PATTERNS, max_size=12), st.sets(st.integers(0, 11)), KEYS)
@example(["#.#", "#", "a.#.#"], set(), "a")
def test_a_key_is_matched_by_all_patterns_that_fit_it(patterns: list[str], removed: set[int], key: str) -> None:
    topics: Topics[int] = Topics()
    for number, pattern in enumerate(patterns):
        topics.add(pattern, number)
    for number in removed & set(range(len(patterns))):
        topics.remove(patterns[number], number)
    there = set(range(len(patterns))) - removed
    expected = {number for number in there if matches(words(patterns[number]), words(key))}
    found = topics.match(key)
    assert set(found) == expected
    assert len(found) == len(expected)


def test_many_runs_in_a_pattern_cost_no_more_than_their_number() -> None:
    """What a search with backtracking would need 2 to the 40 steps for."""
    topics: Topics[str] = Topics()
    topics.add(".".join(["#", "a"] * 40 + ["b"]), "never")
    assert topics.match(".".join(["a"] * 200)) == []
