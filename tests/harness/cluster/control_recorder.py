"""A recorder of the control messages of a cluster, as one member receives them: all members receive the same."""

from __future__ import annotations

from typing import Any, NamedTuple

from cairnmq.cluster.kernel import events
from cairnmq.cluster.kernel.inbox import ReceivedEvent
from tests.harness.cluster.cluster_harness import ClusterHarness


class Said(NamedTuple):
    node: int
    """The node of the sender."""
    payload: bytes

    @property
    def about(self) -> dict[str, Any]:
        """Return the fields of a control event; empty for other payloads."""
        event = events.decode(self.payload)
        return event.about if isinstance(event, events.ControlEvent) else {}


def overhear(harness: ClusterHarness, at: int) -> list[Said]:
    """Record the events that member *at* applies from now on, except acknowledgements and `alive` messages."""
    said: list[Said] = []
    apply_loop = harness[at].core.apply_loop
    apply = apply_loop.apply

    def overheard(received: ReceivedEvent) -> None:
        if received.payload[0] != events.ACK and received.payload != events.control("alive"):
            said.append(Said(received.sender.node, received.payload))
        apply(received)

    apply_loop.apply = overheard  # type: ignore[method-assign]
    return said
