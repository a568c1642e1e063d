"""CairnMQ: a durable AMQP 1.0 broker, and the journaled message store below it.

docs/reference/python.md lists the public names.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
