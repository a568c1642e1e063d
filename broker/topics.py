"""Topic patterns: a tree of words, so that a key is matched against all patterns at once.

A key is words with dots between them. In a pattern `*` stands for one word, `#` for any number of words, none included.
Matching looks at each node of the tree at most once per word of the key (the set of nodes reached), so no pattern can
make it slow, however many `#` it has.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class _Node(Generic[T]):
    __slots__ = ("found", "is_run", "next")

    def __init__(self, is_run: bool = False) -> None:
        self.next: dict[str, _Node[T]] = {}
        self.found: list[T] = []
        self.is_run = is_run
        """It stands for `#`: any further word leads back to it."""


class Topics(Generic[T]):
    """What was added under patterns. One thread at a time."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, pattern: str, value: T) -> None:
        node = self._root
        for word in _words(pattern):
            node = node.next.setdefault(word, _Node(is_run=word == "#"))
        node.found.append(value)

    def remove(self, pattern: str, value: T) -> None:
        """Take out what was added under that pattern; *value* must be there."""
        path = [self._root]
        words = _words(pattern)
        for word in words:
            path.append(path[-1].next[word])
        path[-1].found.remove(value)
        for parent, word in zip(reversed(path[:-1]), reversed(words), strict=True):
            child = parent.next[word]
            if child.next or child.found:
                break
            del parent.next[word]

    def match(self, key: str) -> list[T]:
        """What stands under patterns that match *key*, each once for every pattern it stands under."""
        reached = _with_runs([self._root])
        for word in _words(key):
            following = [node for node in reached if node.is_run]
            for node in reached:
                exact = None if word in _WILDCARDS else node.next.get(word)
                following += [child for child in (exact, node.next.get("*")) if child is not None]
            reached = _with_runs(following)
        return [value for node in reached for value in node.found]


_WILDCARDS = ("*", "#")


def _words(text: str) -> list[str]:
    return text.split(".") if text else []


def _with_runs(nodes: list[_Node[T]]) -> list[_Node[T]]:
    """*nodes*, each once, and what is reached from them by runs of no words."""
    reached: dict[_Node[T], None] = dict.fromkeys(nodes)
    waiting = list(reached)
    while waiting:
        run = waiting.pop().next.get("#")
        if run is not None and run not in reached:
            reached[run] = None
            waiting.append(run)
    return list(reached)
