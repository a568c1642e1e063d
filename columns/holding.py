"""Keeping a broker from giving back what is being read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..base.errors import DiskError
from ..store.directory import Hold, is_locked
from ..store.names import LOCK_NAME
from .files import store_of


@contextmanager
def held(path: str) -> Iterator[None]:
    """Where a broker is at work on the log at *path*, nothing that its log has now is given back meanwhile.

    The log may grow instead. On a full disk the broker uses it again all the same; and who may not write into the store
    can't hold it. So this promises nothing: readers notice what is gone. Raises `CairnError` for a path that is no log.
    """
    store = store_of(path)
    if not is_locked(os.path.join(store, LOCK_NAME)):
        yield
        return
    try:
        hold = Hold(store)
    except DiskError:
        yield
        return
    try:
        yield
    finally:
        hold.end()
