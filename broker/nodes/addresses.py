"""The parts of an address: the name of a queue or of an exchange, or an exchange and a key.

`name` is a queue, or an exchange if there is no queue of that name. `exchange/key` is an exchange and a key for it.
`queue://name` and `topic://name`, or the capabilities `queue` and `topic` of a terminus, select one of them. A topic
that is not the name of an exchange is a key of the exchange `amq.topic`, so that subscribers may use its patterns.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

TOPICS = "amq.topic"
"""The exchange of topics that are not exchanges of their own."""
DYNAMIC_PREFIX = "dynamic-"
"""The prefix of names that the broker generates.

These nodes are not created on first use, else a late reply would leave a queue behind.
"""
SUBSCRIPTION_PREFIX = "subscription:"
"""The prefix of the queues of subscriptions that clients resume; they are not created on first use."""
QUEUE_SCHEME, TOPIC_SCHEME = "queue://", "topic://"
_QUEUES = frozenset({"queue", "temporary-queue"})
_TOPICS = frozenset({"topic", "temporary-topic"})


class AddressKind(Enum):
    """The kind of node that an address requests."""

    ANY = auto()
    QUEUE = auto()
    TOPIC = auto()


class NodeAddress(NamedTuple):
    """A parsed address, not yet resolved to a node."""

    kind: AddressKind
    name: str

    @property
    def exchange(self) -> str:
        """The part before the first slash."""
        return self.name.partition("/")[0]

    @property
    def key(self) -> str:
        """The part behind the first slash."""
        return self.name.partition("/")[2]


def is_topic(capabilities: Iterable[str]) -> bool:
    """Return whether a dynamic node with these *capabilities* is a topic."""
    return not _TOPICS.isdisjoint(capabilities)


def parse(address: str, capabilities: Iterable[str] = ()) -> NodeAddress:
    """Parse *address* with the *capabilities* of its terminus. A scheme overrides them."""
    if address.startswith(QUEUE_SCHEME):
        return NodeAddress(AddressKind.QUEUE, address[len(QUEUE_SCHEME) :])
    if address.startswith(TOPIC_SCHEME):
        return NodeAddress(AddressKind.TOPIC, address[len(TOPIC_SCHEME) :])
    if is_topic(capabilities):
        return NodeAddress(AddressKind.TOPIC, address)
    if not _QUEUES.isdisjoint(capabilities):
        return NodeAddress(AddressKind.QUEUE, address)
    return NodeAddress(AddressKind.ANY, address)
