"""The parts of an address: the name of a queue or of an exchange, or an exchange and a key.

`name` is a queue, or an exchange if there is no queue of that name. `exchange/key` is an exchange and a key for it.
`queue://name` and `topic://name`, or the capabilities `queue` and `topic` of a terminus, select one of them. A topic
that is not the name of an exchange is a key of the exchange `amq.topic`, so that subscribers may use its patterns.

Programs written for RabbitMQ 4 use `/queues/name`, `/exchanges/name` and `/exchanges/name/key`, with percent-encoded
names. Other names with a slash in front or with a scheme belong to queues only if an operator has created them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

TOPICS = "amq.topic"
"""The exchange of topics that are not exchanges of their own."""
DYNAMIC_PREFIX = "dynamic-"
"""The prefix of names that the broker generates.

These nodes are not created on first use, else a late reply would leave a queue behind.
"""
SUBSCRIPTION_PREFIX = "subscription:"
"""The prefix of the queues of subscriptions that clients resume; they are not created on first use."""
QUEUE_SCHEME, TOPIC_SCHEME = "queue://", "topic://"
QUEUES_PATH, EXCHANGES_PATH, MANAGEMENT_PATH = "/queues/", "/exchanges/", "/management"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HALF_ENCODED = re.compile(r"%(?![0-9A-Fa-f]{2})")
_QUEUES = frozenset({"queue", "temporary-queue"})
_TOPICS = frozenset({"topic", "temporary-topic"})
_TEMPORARY = frozenset({"temporary-queue", "temporary-topic"})


class AddressKind(Enum):
    """The kind of node that an address requests."""

    ANY = auto()
    QUEUE = auto()
    TOPIC = auto()
    EXCHANGE = auto()


class NodeAddress(NamedTuple):
    """A parsed address, not yet resolved to a node."""

    kind: AddressKind
    name: str
    parts: tuple[str, str] = ("", "")
    """Exchange and key, of an address that writes them apart."""

    @property
    def exchange(self) -> str:
        """The part before the first slash."""
        return self.parts[0] or self.name.partition("/")[0]

    @property
    def key(self) -> str:
        """The part behind the first slash."""
        return self.parts[1] if self.parts[0] else self.name.partition("/")[2]


def is_topic(capabilities: Iterable[str]) -> bool:
    """Return whether a dynamic node with these *capabilities* is a topic."""
    return not _TOPICS.isdisjoint(capabilities)


def is_temporary(capabilities: Iterable[str]) -> bool:
    """Return whether a dynamic node with these *capabilities* is a temporary destination of JMS."""
    return not _TEMPORARY.isdisjoint(capabilities)


def parse(address: str, capabilities: Iterable[str] = ()) -> NodeAddress:
    """Parse *address* with the *capabilities* of its terminus. A scheme overrides them."""
    if address.startswith(QUEUE_SCHEME):
        return NodeAddress(AddressKind.QUEUE, address[len(QUEUE_SCHEME) :])
    if address.startswith(TOPIC_SCHEME):
        return NodeAddress(AddressKind.TOPIC, address[len(TOPIC_SCHEME) :])
    if address.startswith(QUEUES_PATH) and (name := _decoded(address[len(QUEUES_PATH) :])):
        return NodeAddress(AddressKind.QUEUE, name)
    if address.startswith(EXCHANGES_PATH):
        exchange, _, key = address[len(EXCHANGES_PATH) :].partition("/")
        parts = _decoded(exchange), _decoded(key)
        if parts[0] and not (key and not parts[1]):
            return NodeAddress(AddressKind.EXCHANGE, "/".join(filter(None, parts)), parts)
    if is_topic(capabilities):
        return NodeAddress(AddressKind.TOPIC, address)
    if not _QUEUES.isdisjoint(capabilities):
        return NodeAddress(AddressKind.QUEUE, address)
    return NodeAddress(AddressKind.ANY, address)


def _decoded(segment: str) -> str:
    """Return the name that a segment of a path stands for; empty for none, or an invalid one."""
    if "/" in segment or _HALF_ENCODED.search(segment):
        return ""
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        return ""


def flaw(address: str, asked: NodeAddress) -> str:
    """Return why no queue may be created for *address*, of which *asked* is the parse; empty if one may."""
    if asked.kind is AddressKind.EXCHANGE:
        return f"there is no exchange {asked.exchange!r}"
    if asked.name != address:
        return ""
    if address == MANAGEMENT_PATH:
        return f"{address} is RabbitMQ's: use $management, or 'cairnmq ctl'"
    shown = repr(address if len(address) <= 80 else address[:80] + "...")
    if address.startswith((QUEUES_PATH, EXCHANGES_PATH)):
        return f"{shown} is invalid: write /queues/QUEUE or /exchanges/EXCHANGE/KEY, and percent-encode the names"
    if address.startswith("/"):
        return f"there is no queue {shown}: write QUEUE, EXCHANGE/KEY, /queues/QUEUE or /exchanges/EXCHANGE/KEY"
    if _SCHEME.match(address):
        return f"the scheme of {shown} is unknown: use queue://, topic:// or a name"
    return ""
