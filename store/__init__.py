"""The store: durable messages, transactions and wiring behind the MessageStore interface.

`open_store` opens a store for a program that has no broker; the other names are the classes of its results and options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Durable", "Message", "Queue", "Store", "StoreOptions", "UnitOfWork", "open_store"]

if TYPE_CHECKING:
    from .contract.durability import Durable
    from .contract.options import StoreOptions
    from .embedded.library import Store, UnitOfWork, open_store
    from .embedded.queues import Message, Queue
else:

    def __getattr__(name: str) -> object:
        """Import SQL and LMDB lazily: readers of journals, like workers of Spark, do not need them."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .embedded import library, queues

        return getattr(queues if name == "Message" else library, name)
