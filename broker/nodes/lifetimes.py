"""Automatic deletion of nodes: AMQP's lifetime policies, of dynamic nodes and of queues with `auto-delete`.

| `auto-delete` | AMQP | the node is deleted |
|---|---|---|
| `close` | delete-on-close, 0x2b | with the link it was made for; the default of dynamic nodes |
| `no-links` | delete-on-no-links, 0x2c | after its last link is closed |
| `no-messages` | delete-on-no-messages, 0x2d | after its last message is removed |
| `no-links-or-messages` | delete-on-no-links-or-messages, 0x2e | when it has neither |

A node is not deleted before it has had a link, or a message.
"""

from __future__ import annotations

from ...amqp.codec import decode
from ...amqp.codec.types import Described
from ...base.callbacks import ignore
from ..queues.queue import Queue
from .registry import NodeRegistry

CLOSE, NO_LINKS, NO_MESSAGES, NEITHER = "close", "no-links", "no-messages", "no-links-or-messages"
_POLICIES = {
    0x2B: CLOSE,
    0x2C: NO_LINKS,
    0x2D: NO_MESSAGES,
    0x2E: NEITHER,
    "amqp:delete-on-close:list": CLOSE,
    "amqp:delete-on-no-links:list": NO_LINKS,
    "amqp:delete-on-no-messages:list": NO_MESSAGES,
    "amqp:delete-on-no-links-or-messages:list": NEITHER,
}


def asked_for(properties: bytes) -> str:
    """Return the lifetime policy in the properties of a dynamic node, an encoded map. Raise `Malformed`."""
    asked = decode.read_map(properties, 0).get("lifetime-policy") if properties else None
    descriptor = asked.descriptor if isinstance(asked, Described) else None
    return _POLICIES.get(descriptor, CLOSE) if isinstance(descriptor, int | str) else CLOSE


def is_over(queue: Queue) -> bool:
    """Return whether the lifetime of a queue is over, by its policy."""
    has_links = bool(queue.producers or queue.consumers or queue.browsers)
    policy = queue.policy.auto_delete
    if policy == NO_LINKS:
        return queue.was_linked and not has_links
    if policy == NO_MESSAGES:
        return queue.was_filled and not queue.messages
    return policy == NEITHER and (queue.was_linked or queue.was_filled) and not has_links and not queue.messages


def check(nodes: NodeRegistry, queue: Queue) -> None:
    """Delete *queue* if the lifetime that its policy sets is over."""
    queue.was_filled = queue.was_filled or queue.messages > 0
    if queue.order.deletes() and not queue.is_deleting and is_over(queue):
        nodes.delete_queue(queue, ignore, "it is no longer used")
