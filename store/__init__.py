"""What is true: messages, transactions and wiring, behind the MessageStore interface.

`open_store` opens a store for a program that has no broker, see `library`.
"""

from .library import open_store

__all__ = ["open_store"]
