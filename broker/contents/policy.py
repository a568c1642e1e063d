"""The policy of a queue, which its arguments set.

The arguments are stored in the wiring with the queue, under the names below. A queue without arguments has `PLAIN`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...base.errors import StoreError

OVERFLOWS = ("reject", "block", "ring", "drop")
AUTO_DELETES = ("close", "no-links", "no-messages", "no-links-or-messages")
MOST_MS = 1 << 44
MOST_COUNT = 1 << 62


class Policy(NamedTuple):
    """The values of the arguments of a queue, whose names have dashes for underscores."""

    max_messages: int = 0
    """The maximum number of messages on the queue, including those that consumers have; 0 for no limit."""
    max_bytes: int = 0
    """The maximum number of bytes of all messages together; 0 for no limit."""
    overflow: str = "reject"
    """The overflow policy for a message beyond a limit.

    * `reject` rejects the message.
    * `block` accepts it, but grants senders no credit until the queue has room.
    * `ring` accepts it and drops the oldest messages.
    * `drop` drops it silently.
    """
    message_ttl_ms: int = 0
    """The maximum time of a message on the queue, beside its own time to live; 0 for no limit."""
    expiry_address: str = ""
    """The address for expired messages, which are dropped if it is empty."""
    dead_letter_address: str = ""
    """The address for messages that were rejected, or delivered too often; they are dropped if it is empty."""
    max_deliveries: int = 0
    """The number of failed deliveries after which a message is dead-lettered; 0 for no limit."""
    retry_delay_ms: int = 0
    """The delay of a message after a failed delivery, which doubles with each failure."""
    max_retry_delay_ms: int = 60_000
    """The maximum delay after a failed delivery."""
    priorities: bool = False
    """Messages of a higher priority are dispatched first."""
    last_value_key: str = ""
    """The application property, or `subject`, of which only the newest message for each value is kept."""
    message_groups: bool = False
    """Messages of one group-id go to one consumer until it is closed."""
    single_active_consumer: bool = False
    """The first consumer gets all messages; the others wait until it is closed."""
    exclusive: bool = False
    """The queue allows one consumer at a time."""
    auto_delete: str = ""
    """The condition for automatic deletion: its maker is closed (`close`), or it has no links, messages, or either."""
    paused: bool = False
    """Consumers get no messages until that is changed."""
    replicated: bool = True
    """True if all members of a cluster have the queue, with the same messages; else only one member has it."""
    duplicate_window: int = 0
    """The number of remembered message-ids; a message with one of them is accepted, but not enqueued again."""

    @property
    def is_sorted(self) -> bool:
        """Return whether the order, or the choice of consumers, depends on the contents of messages."""
        return bool(self.priorities or self.last_value_key or self.message_groups or self.single_active_consumer)

    @property
    def assigns(self) -> bool:
        """Return whether the queue decides which consumer gets a message."""
        return self.message_groups or self.single_active_consumer

    @property
    def looks_inside(self) -> bool:
        """Return whether the queue needs the beginning of a message that it does not hold."""
        return self.is_sorted or self.duplicate_window > 0

    @property
    def has_limits(self) -> bool:
        """Return whether messages are checked before they are enqueued."""
        return bool(self.max_messages or self.max_bytes or self.duplicate_window)


PLAIN = Policy()
CHANGEABLE = (
    "max-messages", "max-bytes", "overflow", "message-ttl-ms", "expiry-address", "dead-letter-address",
    "max-deliveries", "retry-delay-ms", "max-retry-delay-ms", "exclusive", "paused",
)  # fmt: skip
"""Arguments that may change while the queue is in use, beside those that begin with `x-`."""
_MOST = {"max_messages": MOST_COUNT, "max_bytes": MOST_COUNT, "max_deliveries": 1 << 31, "duplicate_window": 1 << 24}
_CHOICES = {"overflow": OVERFLOWS, "auto_delete": AUTO_DELETES}
NAMES = tuple(name.replace("_", "-") for name in Policy._fields)


def policy_of(queue: str, arguments: Mapping[str, Any]) -> Policy:
    """Return the policy that *arguments* set. Raise `StoreError` for an unknown argument or an invalid value."""
    if not arguments:
        return PLAIN
    place = f"queue {queue!r}"
    fields: dict[str, Any] = {}
    for argument, value in arguments.items():
        if argument.startswith("x-"):  # annotations of clients
            continue
        name = argument.replace("-", "_")
        if name not in Policy._fields or "_" in argument:
            raise StoreError(place, f"there is no argument {argument!r}", "known are " + ", ".join(NAMES))
        default = getattr(PLAIN, name)
        if type(value) is not type(default):
            wanted = {bool: "true or false", int: "a number", str: "a text"}[type(default)]
            raise StoreError(place, f"{argument} is {value!r}", f"use {wanted}")
        if isinstance(value, int) and not 0 <= value <= _MOST.get(name, MOST_MS):
            raise StoreError(place, f"{argument} is {value}", f"use 0 to {_MOST.get(name, MOST_MS)}")
        if value and name in _CHOICES and value not in _CHOICES[name]:
            raise StoreError(place, f"{argument} is {value!r}", "use one of " + ", ".join(_CHOICES[name]))
        fields[name] = value
    return Policy(**fields)
