"""Topic patterns, all of which are matched against a key at once.

A key consists of words separated by dots. In a pattern `*` stands for one word, `#` for any number of words, including
none. Matching walks a tree of words, which takes one lookup per word of the key unless many patterns have wildcards.
Beyond `MOST_VISITS`, a `_Block` of patterns takes over: the state of all its patterns is one integer, and a word of the
key costs a few operations on it. So the longest key takes less than a millisecond for a thousand patterns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_VISITS = 200
"""Nodes of the tree that are visited for one key: less than 0.1 ms."""
BLOCK_STATES = 2048
"""The limit of words of the patterns in one block: long integers make the masks of many words large."""


class _Node(Generic[T]):
    __slots__ = ("found", "is_run", "next")

    def __init__(self, is_run: bool = False) -> None:
        self.next: dict[str, _Node[T]] = {}
        self.found: list[T] = []
        self.is_run = is_run
        """True if the node stands for `#`: any further word leads back to it."""


class Topics(Generic[T]):
    """Values under patterns. One thread at a time."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._blocks: dict[tuple[str, ...], _Block[T]] = {}
        """The blocks by pattern."""
        self._last: _Block[T] = _Block()
        """The block that new patterns are added to."""

    def add(self, pattern: str, value: T) -> None:
        words = _canonical(pattern)
        node = self._root
        for word in words:
            node = node.next.setdefault(word, _Node(is_run=word == "#"))
        node.found.append(value)
        if words not in self._blocks:
            self._insert(words, node.found)

    def _insert(self, words: tuple[str, ...], found: list[T]) -> None:
        if self._last.states + len(words) + 1 > BLOCK_STATES:
            self._last = _Block()
        self._last.add(words, found)
        self._blocks[words] = self._last

    def remove(self, pattern: str, value: T) -> None:
        """Remove *value*, which was added under that pattern."""
        path = [self._root]
        words = _canonical(pattern)
        for word in words:
            path.append(path[-1].next[word])
        path[-1].found.remove(value)
        if path[-1].found:
            return
        block = self._blocks.pop(words)
        block.remove(words)
        if block is not self._last and block.states < BLOCK_STATES // 4:  # sparsely filled blocks would add up
            for its_words, found in block.patterns.items():
                self._insert(its_words, found)
        for parent, word in zip(reversed(path[:-1]), reversed(words), strict=True):
            child = parent.next[word]
            if child.next or child.found:
                break
            del parent.next[word]

    def match(self, key: str) -> list[T]:
        """Return the values of the patterns that match *key*, each once for every pattern it was added under."""
        words = _words(key)
        reached = _with_runs([self._root])
        left = MOST_VISITS
        for word in words:
            left -= len(reached)
            if left < 0:
                return [value for block in dict.fromkeys(self._blocks.values()) for value in block.match(words)]
            following = [node for node in reached if node.is_run]
            for node in reached:
                exact = None if word in _WILDCARDS else node.next.get(word)
                following += [child for child in (exact, node.next.get("*")) if child is not None]
            reached = _with_runs(following)
        return [value for node in reached for value in node.found]


class _Block(Generic[T]):
    """Patterns as one automaton, whose states are the bits of an integer.

    A pattern of n words has n + 1 states: state i is set when the first i words have matched what was read of the key.
    """

    def __init__(self) -> None:
        self.patterns: dict[tuple[str, ...], list[T]] = {}
        self.states = 0
        self._is_compiled = False
        self._start = self._runs = self._any = self._ends = 0
        self._moves: dict[str, int] = {}
        """The states that each word leads on from, `_any` included."""
        self._found: dict[int, list[T]] = {}
        """The values by final state."""

    def add(self, words: tuple[str, ...], found: list[T]) -> None:
        """Add a pattern; *found*: its values, at any time."""
        self.patterns[words] = found
        self.states += len(words) + 1
        self._is_compiled = False

    def remove(self, words: tuple[str, ...]) -> None:
        del self.patterns[words]
        self.states -= len(words) + 1
        self._is_compiled = False

    def match(self, words: list[str]) -> list[T]:
        """Return the values of the patterns that match a key of these words."""
        if not self._is_compiled:
            self._compile()
        runs, moves, any_word = self._runs, self._moves, self._any
        states = self._start
        for word in words:
            states = ((states & moves.get(word, any_word)) << 1) | (states & runs)
            states |= (states & runs) << 1  # a run of no words; two runs never follow one another
        ended = states & self._ends
        values: list[T] = []
        while ended:
            last = ended.bit_length() - 1
            values += self._found[last]
            ended ^= 1 << last
        return values

    def _compile(self) -> None:
        start: list[int] = []
        runs: list[int] = []
        any_word: list[int] = []
        exact: dict[str, list[int]] = {}
        self._found = {}
        state = 0
        for words, found in self.patterns.items():
            start.append(state)
            for word in words:
                places = runs if word == "#" else any_word if word == "*" else exact.setdefault(word, [])
                places.append(state)
                state += 1
            self._found[state] = found
            state += 1
        self._start, self._runs, self._any, self._ends = map(_bits, (start, runs, any_word, self._found))
        self._start |= (self._start & self._runs) << 1
        self._moves = {word: _bits(places) | self._any for word, places in exact.items()}
        self._is_compiled = True


_WILDCARDS = ("*", "#")


def _bits(numbers: Iterable[int]) -> int:
    """Return the integer in which these bits are set."""
    found = bytearray(BLOCK_STATES // 8)
    for number in numbers:
        found[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(found, "little")


def _words(text: str) -> list[str]:
    return text.split(".") if text else []


def _canonical(pattern: str) -> tuple[str, ...]:
    """Return the words of *pattern*, with the `*` before the `#`, and one `#`, where wildcards follow one another."""
    words: list[str] = []
    has_run = False
    for word in _words(pattern):
        if word == "#":
            has_run = True
            continue
        if has_run and word != "*":
            words.append("#")
            has_run = False
        words.append(word)
    if has_run:
        words.append("#")
    return tuple(words)


def _with_runs(nodes: list[_Node[T]]) -> list[_Node[T]]:
    """*nodes*, each once, and those that runs of no words lead to from them."""
    reached: dict[_Node[T], None] = dict.fromkeys(nodes)
    for node in nodes:
        run = node.next.get("#")
        if run is not None:
            reached[run] = None
    return list(reached)
