"""CairnMQ: a durable AMQP 1.0 broker, and the journaled message store below it.

Public names: `cairnmq.store` (the embedded store), `cairnmq.store.conformance` (tests for stores of others),
`cairnmq.analytics.views` (journals as Arrow tables) and `cairnmq.analytics.spark` (journals in Spark).
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
