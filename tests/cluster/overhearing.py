"""What members say, as one of them hears it: all hear the same."""

from __future__ import annotations

from typing import Any, NamedTuple

from cairnmq.cluster import events
from cairnmq.cluster.deliver import Heard

from .world import World


class Said(NamedTuple):
    node: int
    """Who said it."""
    payload: bytes

    @property
    def about(self) -> dict[str, Any]:
        """Of what is told in words."""
        event = events.decode(self.payload)
        return event.about if isinstance(event, events.Told) else {}


def overhear(world: World, at: int) -> list[Said]:
    """All that is heard from now on by the member *at*, but acknowledgements."""
    said: list[Said] = []
    deliver = world[at].core.deliver
    hear = deliver.hear

    def overheard(heard: Heard) -> None:
        if heard.payload[0] != events.ACK:
            said.append(Said(heard.sender.node, heard.payload))
        hear(heard)

    deliver.hear = overheard  # type: ignore[method-assign]
    return said
