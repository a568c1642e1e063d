"""CairnMQ: a durable AMQP 1.0 broker, and the journaled message store below it.

Public names: `cairnmq.store` (the embedded store), `cairnmq.store.conformance` (tests for stores of others),
`cairnmq.analytics.views` (journals as Arrow tables) and `cairnmq.analytics.spark` (journals in Spark).
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__: str


def __getattr__(name: str) -> str:
    """Return the version of the installed package."""
    if name == "__version__":
        from importlib.metadata import version

        return version("cairnmq")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
