"""The disposal of the entries of purged and deleted queues, in time slices. Core only.

A purge takes effect in the step that requests it: the containers of the queue's messages are replaced. To mark a
million entries and to free their memory takes a tenth of a second, so that follows in later steps. The memory budget is
updated at once: no client can send as much again in that time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ..messages.entry import Entry
from .background import BackgroundWork

AT_ONCE = 256
"""The number of items between two checks of the clock."""
Items = list[Any] | deque[Any] | dict[Any, Any]


class Disposal:
    """Containers without other references, by the user for whom they are emptied."""

    def __init__(self, background: BackgroundWork) -> None:
        self._background = background
        self._waiting: dict[str, deque[Items | Callable[[], None]]] = {}

    def add(self, *containers: Items, user: str = "") -> None:
        """Empty *containers*, and mark their entries as dequeued: items of lists, and keys and values of dicts."""
        for container in containers:
            if container:
                self._put(container, user)

    def then(self, action: Callable[[], None], user: str = "") -> None:
        """Do *action* when all containers that were added for *user* are empty; at once if they are."""
        if user in self._waiting:
            self._put(action, user)
        else:
            action()

    def _put(self, item: Items | Callable[[], None], user: str) -> None:
        waiting = self._waiting.get(user)
        if waiting is not None:
            waiting.append(item)
            return
        self._waiting[user] = deque([item])
        self._empty(user)

    def _empty(self, user: str) -> None:
        waiting = self._waiting[user]
        while waiting:
            item = waiting[0]
            if callable(item):
                waiting.popleft()
                item()
                continue
            if not self._background.has_time():
                self._background.put_off(lambda: self._empty(user), user)
                return
            _empty_some(item)
            if not item:
                waiting.popleft()
        del self._waiting[user]


def _empty_some(container: Items) -> None:
    many = min(AT_ONCE, len(container))
    if isinstance(container, dict):
        for _ in range(many):
            for item in container.popitem():
                if isinstance(item, Entry):
                    item.is_dequeued = True
        return
    pop = container.pop
    for _ in range(many):
        item = pop()
        if isinstance(item, Entry):
            item.is_dequeued = True
