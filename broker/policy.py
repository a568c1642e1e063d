"""A queue's policy: what its arguments ask for beyond a plain line of messages.

The arguments stand in the wiring with the queue, under the names below. A queue without any has `PLAIN`, and costs what
a plain queue costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..base.errors import StoreError

REJECTION, TOO_OFTEN, EXPIRY = "rejected", "delivery_limit", "expired"
"""Why a message leaves its queue for another address."""
OVERFLOWS = ("reject", "block", "ring", "drop")
AUTO_DELETES = ("close", "no-links", "no-messages", "no-links-or-messages")
MOST_MS = 1 << 44
MOST_COUNT = 1 << 62


class Policy(NamedTuple):
    """What the arguments of these names say, with dashes for underscores."""

    max_messages: int = 0
    """How many messages may be on the queue, those that consumers have included; 0 for any number."""
    max_bytes: int = 0
    """How many bytes they may have together; 0 for any number."""
    overflow: str = "reject"
    """What becomes of a message that is too much: `reject` says so to its sender; `block` takes it, but gives senders
    no credit until there is room; `ring` takes it and drops the oldest ones; `drop` drops it, and tells nobody."""
    message_ttl_ms: int = 0
    """How long a message may stay, on top of what it says itself; 0 for as long as it likes."""
    expiry_address: str = ""
    """Where messages go whose time is over; they vanish if it is empty."""
    dead_letter_address: str = ""
    """Where messages go that were rejected, or delivered too often; they vanish if it is empty."""
    max_deliveries: int = 0
    """How often a delivery of a message may fail; 0 for any number of times."""
    retry_delay_ms: int = 0
    """How long a message that failed waits; each time it fails, twice as long as before."""
    max_retry_delay_ms: int = 60_000
    """The longest that it waits."""
    priorities: bool = False
    """Messages of a higher priority are handed out first."""
    last_value_key: str = ""
    """The application property, or `subject`, of which only the newest message for each value is kept."""
    message_groups: bool = False
    """Messages of one group-id go to one consumer, as long as it is there."""
    single_active_consumer: bool = False
    """The consumer that came first gets everything; the others wait for it to go."""
    exclusive: bool = False
    """There may be only one consumer at a time."""
    auto_delete: str = ""
    """When the queue goes by itself: with its maker (`close`), or without links, messages, or either."""
    paused: bool = False
    """Consumers get nothing, until that is changed."""
    replicated: bool = True
    """In a cluster, all members have the queue, with the same messages on it; else only the one where it was made."""
    duplicate_window: int = 0
    """How many message-ids are remembered, so that a message with one of them is taken, but not kept a second time."""

    @property
    def is_shaped(self) -> bool:
        """Whether order or choice depend on what is in the messages."""
        return bool(self.priorities or self.last_value_key or self.message_groups or self.single_active_consumer)

    @property
    def assigns(self) -> bool:
        """Whether the queue says which consumer gets a message."""
        return self.message_groups or self.single_active_consumer

    @property
    def looks_inside(self) -> bool:
        """Whether the queue wants to know how a message begins that it does not hold."""
        return self.is_shaped or self.duplicate_window > 0

    @property
    def has_gate(self) -> bool:
        """Whether messages are looked at before they are taken."""
        return bool(self.max_messages or self.max_bytes or self.duplicate_window)


PLAIN = Policy()
CHANGEABLE = (
    "max-messages", "max-bytes", "overflow", "message-ttl-ms", "expiry-address", "dead-letter-address",
    "max-deliveries", "retry-delay-ms", "max-retry-delay-ms", "exclusive", "paused",
)  # fmt: skip
"""What may change while the queue is in use; what begins with `x-` may, too."""
_MOST = {"max_messages": MOST_COUNT, "max_bytes": MOST_COUNT, "max_deliveries": 1 << 31, "duplicate_window": 1 << 24}
_CHOICES = {"overflow": OVERFLOWS, "auto_delete": AUTO_DELETES}
NAMES = tuple(name.replace("_", "-") for name in Policy._fields)


def policy_of(queue: str, arguments: Mapping[str, Any]) -> Policy:
    """The policy that *arguments* ask for. Raises `StoreError` for what is none of them, or no fit value."""
    if not arguments:
        return PLAIN
    place = f"queue {queue!r}"
    fields: dict[str, Any] = {}
    for argument, value in arguments.items():
        if argument.startswith("x-"):  # somebody's own notes
            continue
        name = argument.replace("-", "_")
        if name not in Policy._fields or "_" in argument:
            raise StoreError(place, f"there is no argument {argument!r}", "known are " + ", ".join(NAMES))
        default = getattr(PLAIN, name)
        if type(value) is not type(default):
            wanted = {bool: "true or false", int: "a number", str: "a text"}[type(default)]
            raise StoreError(place, f"{argument} is {value!r}", f"say {wanted}")
        if isinstance(value, int) and not 0 <= value <= _MOST.get(name, MOST_MS):
            raise StoreError(place, f"{argument} is {value}", f"say 0 to {_MOST.get(name, MOST_MS)}")
        if value and name in _CHOICES and value not in _CHOICES[name]:
            raise StoreError(place, f"{argument} is {value!r}", "say one of " + ", ".join(_CHOICES[name]))
        fields[name] = value
    return Policy(**fields)
