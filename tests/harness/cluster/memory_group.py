"""Group members on a bus in memory; everything else is real. Members on one network run from one seed."""

from __future__ import annotations

from cairnmq.cluster.group.group import WINDOW_BYTES
from cairnmq.cluster.group.member import GroupMember

from .memory_bus import MemoryBus, MemoryNetwork


def memory_member(network: MemoryNetwork, node: int, window_bytes: int = WINDOW_BYTES) -> GroupMember:
    """Return a member of a new process on machine *node*, which has not joined yet."""
    return on_bus(network.bus(node), network, window_bytes)


def on_bus(
    bus: MemoryBus, network: MemoryNetwork, window_bytes: int = WINDOW_BYTES, agreed: str = ""
) -> GroupMember:
    """Return a member on *bus*, for tests that act on the bus."""
    return GroupMember(bus, network.clock, lambda: network.random.getrandbits(62) | 1, window_bytes, agreed=agreed)
