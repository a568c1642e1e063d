"""Leases that keep a broker from reclaiming the containers that are being read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...base.errors import DiskError
from ...store.directory.hold import Hold
from ...store.directory.lock import is_in_use
from .files import store_of


@contextmanager
def held(path: str) -> Iterator[None]:
    """Keep a running broker from reclaiming the current contents of the log at *path*.

    The log may grow instead. On a full disk the broker reclaims it nevertheless, and a process without write access to
    the store holds nothing. So a lease is no guarantee: readers detect reclaimed ranges. Raises `CairnError` for a path
    that is no log.
    """
    store = store_of(path)
    try:
        hold = hold_of(store)
    except DiskError:
        hold = None
    try:
        yield
    finally:
        if hold is not None:
            hold.end()


@contextmanager
def held_store(store: str) -> Iterator[Callable[[], None]]:
    """Keeps a broker at work on *store* from overwriting what its log has now; the log may grow instead.

    Yields a function that raises `HoldBroken` if the broker could not wait. Raises `DiskError` if it can't be held.
    """
    hold = hold_of(store)
    if hold is None:
        yield lambda: None
        return
    with hold:
        yield hold.check


def hold_of(store: str) -> Hold | None:
    """A hold of *store*, to be ended; None if no broker is at work on it. Raises `DiskError` if it can't be held."""
    return Hold(store) if is_in_use(store) else None
