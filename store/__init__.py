"""The store: durable messages, transactions and wiring behind the MessageStore interface.

`open_store` opens a store for a program that has no broker, see `library`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["open_store"]

if TYPE_CHECKING:
    from .embedded.library import open_store
else:

    def __getattr__(name: str) -> object:
        """Import SQL and LMDB lazily, for code that opens a store: readers of journals, like workers of Spark, do not
        need them."""
        if name != "open_store":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .embedded.library import open_store

        return open_store
