"""Kinds of stores: entry points of the group `cairnmq.stores`, named by `--store`, each an `OpenStore`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Protocol, cast

from ...base.clock import Clock
from ...base.errors import InvalidOption
from .options import Progress, StoreOptions
from .owner import OwnedStore

GROUP = "cairnmq.stores"


class Report(Protocol):
    """Report of opening a store of any kind."""

    def lines(self) -> list[str]:
        """Return the report as lines of text, the first of them "new store" or "recovered ..."."""


class OpenStore(Protocol):
    """A function that opens a store."""

    def __call__(
        self, path: str, clock: Clock, options: StoreOptions, progress: Progress | None, /
    ) -> tuple[OwnedStore, Report]: ...


@cache
def find_kind(name: str) -> OpenStore:
    """Return the function that opens stores of the kind *name*. Raises `InvalidOption` if it cannot be loaded.

    Cached: the search reads the metadata of each installed package.
    """
    known = {found.name: found for found in entry_points(group=GROUP)}
    if name not in known:
        kinds = ", ".join(sorted(known))
        raise InvalidOption(f"--store {name}", "there is no such kind of store", f"there are {kinds}")
    try:
        return cast(OpenStore, known[name].load())
    except (ImportError, AttributeError) as error:
        reason = f"it can't be loaded from {known[name].value} ({error})"
        raise InvalidOption(f"--store {name}", reason, "install the package that it comes from again") from error
