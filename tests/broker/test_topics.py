"""Tests of topic patterns, which match as defined and in few steps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cairnmq.broker.nodes import topic_trie as matching
from cairnmq.broker.nodes.topic_trie import Topics

WORDS = st.sampled_from(["a", "b", "*", "#", ""])
KEYS = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=6).map(".".join)
PATTERNS = st.lists(WORDS, max_size=6).map(".".join)


@pytest.fixture(params=[0, 200], ids=["blocks", "tree"], autouse=True, scope="module")
def visits(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the tests with both matching methods: the tree, and small blocks in its place."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "MOST_VISITS", request.param)
        patch.setattr(matching, "BLOCK_STATES", 24)
        yield


def matches(pattern: list[str], key: list[str]) -> bool:
    """Return whether *key* matches *pattern* by the definition, word by word."""
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


def test_a_key_costs_few_steps_whatever_the_patterns_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matching visits few tree nodes and block words for any patterns; backtracking would need 2 to the 60 steps."""
    monkeypatch.undo()
    steps = 0
    with_runs, match = matching._with_runs, matching._Block.match

    def visiting(nodes: list[matching._Node[int]]) -> list[matching._Node[int]]:
        nonlocal steps
        found = with_runs(nodes)
        steps += len(found)
        return found

    def looking(block: matching._Block[int], words: list[str]) -> list[int]:
        nonlocal steps
        steps += len(words)
        return match(block, words)

    monkeypatch.setattr(matching, "BLOCK_STATES", 2048)
    monkeypatch.setattr(matching, "_with_runs", visiting)
    monkeypatch.setattr(matching._Block, "match", looking)
    topics: Topics[int] = Topics()
    some = [".".join(["#", *words]) for words in product("a*#c", repeat=4)]
    many = [".".join(["#", "a"] * 60), ".".join(["*", "#", "a", "#"] * 30), ".".join(["#", "*"] * 60)]
    for number, pattern in enumerate([*some, *(f"#.a.*.b{n}" for n in range(200)), *many]):
        topics.add(pattern, number)
    for length in (1, 60, 128):
        steps = 0
        assert topics.match(".".join(["a"] * length))
        assert steps <= 1500


def test_patterns_that_come_and_go_leave_few_blocks() -> None:
    topics: Topics[int] = Topics()
    for group in range(50):
        for number in range(100):
            topics.add(f"#.{group}.{number}", number)
        for number in range(99):
            topics.remove(f"#.{group}.{number}", number)
    states = sum(len(words) + 1 for words in topics._blocks)
    assert len({*topics._blocks.values()}) <= 1 + 4 * states / (matching.BLOCK_STATES - 4)
