"""What an address says: a queue's name, an exchange's, or an exchange's and a key.

`name` is a queue, or an exchange if there is no queue of that name. `exchange/key` is an exchange and a key for it.
`queue://name` and `topic://name`, or the capabilities `queue` and `topic` of a terminus, say which is meant. A topic
that is no exchange by its name is a key of the exchange `amq.topic`, so that subscribers may use its patterns.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

TOPICS = "amq.topic"
"""The exchange of topics that are no exchanges of their own."""
QUEUE_SCHEME, TOPIC_SCHEME = "queue://", "topic://"
_QUEUES = frozenset({"queue", "temporary-queue"})
_TOPICS = frozenset({"topic", "temporary-topic"})


class Kind(Enum):
    """What is asked for."""

    ANY = auto()
    QUEUE = auto()
    TOPIC = auto()


class Address(NamedTuple):
    """An address, taken apart as far as it says by itself what it means."""

    kind: Kind
    name: str

    @property
    def exchange(self) -> str:
        """What stands before the first slash."""
        return self.name.partition("/")[0]

    @property
    def key(self) -> str:
        """What stands behind it."""
        return self.name.partition("/")[2]


def is_topic(capabilities: Iterable[str]) -> bool:
    """Whether a node that is made on the fly with these *capabilities* is to be a topic."""
    return not _TOPICS.isdisjoint(capabilities)


def parse(address: str, capabilities: Iterable[str] = ()) -> Address:
    """What *address* means together with the *capabilities* of its terminus. A scheme goes before them."""
    if address.startswith(QUEUE_SCHEME):
        return Address(Kind.QUEUE, address[len(QUEUE_SCHEME) :])
    if address.startswith(TOPIC_SCHEME):
        return Address(Kind.TOPIC, address[len(TOPIC_SCHEME) :])
    if is_topic(capabilities):
        return Address(Kind.TOPIC, address)
    if not _QUEUES.isdisjoint(capabilities):
        return Address(Kind.QUEUE, address)
    return Address(Kind.ANY, address)
