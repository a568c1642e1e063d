"""A store under test, and how the laws look at it. Of `conformance`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ...base.errors import StoreError
from ..contract.owner import OwnedStore
from ..contract.wiring_rows import QueueRow
from .model import StoreMaker, arrangement

NOW_US = 1000
NOWHERE = 10**9
"""No queue and no message has this id."""


class Subject:
    """A store under test, opened as often as a law likes."""

    def __init__(self, maker: StoreMaker) -> None:
        self.maker = maker
        self.store = self._opened()

    def _opened(self) -> OwnedStore:
        store = self.maker.open()
        store.run_inline(store.became_durable)
        return store

    def reopen(self) -> OwnedStore:
        self.store.close()
        self.store = self._opened()
        return self.store

    def crash(self) -> OwnedStore:
        self.maker.crash(self.store)
        self.store = self._opened()
        return self.store

    def queue(self, name: str = "q") -> int:
        row = asked(lambda done: self.store.create_queue(name, done))
        assert isinstance(row, QueueRow), row
        return row.id

    def refused(self, error: type[StoreError], call: Callable[[], object]) -> None:
        """The call is refused by that name, and has changed nothing."""
        before = arrangement(self.store)
        with pytest.raises(error) as caught:
            call()
        assert str(caught.value).startswith(f"{caught.value.place}: {caught.value.reason}")
        assert arrangement(self.store) == before


def asked(ask: Callable[[Callable[[Any], None]], None]) -> Any:
    """The answer to a call about wiring, without threads."""
    answers: list[Any] = []
    ask(answers.append)
    [answer] = answers
    return answer
