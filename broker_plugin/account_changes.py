"""Changes of the users file on behalf of management, on a thread beside the core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import nsmallest

from ..base.accounts import users
from ..base.errors import CairnError
from ..management.entities.users import Edit
from ..management.protocol.request import Refusal

Run = Callable[..., None]


class AccountChanges:
    """The accounts of a users file (`AccountsPort`). Called on the core."""

    def __init__(self, path: str, has_rules: bool, submit: Run, post: Run) -> None:
        """*submit* runs work on the other thread, *post* on the core."""
        self.has_rules = has_rules
        self._path = path
        self._submit = submit
        self._post = post

    def change(self, edit: Edit, done: Callable[[Exception | None], None]) -> None:
        self._submit(self._do, partial(users.change, self._path, edit), done)

    def names(self, after: str, count: int, done: Callable[[Sequence[str] | Exception], None]) -> None:
        def found() -> list[str]:
            return nsmallest(count, (name for name in users.read(self._path).accounts if name > after))

        self._submit(self._do, found, done)

    def _do(self, work: Callable[[], object], done: Callable[..., None]) -> None:
        try:
            result = work()
        except (CairnError, Refusal) as error:
            result = error
        self._post(done, result)
