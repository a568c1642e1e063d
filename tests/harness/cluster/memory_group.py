"""A member of an in-process group: real in all but the wires. Several of them on one network run from one seed."""

from __future__ import annotations

from cairnmq.cluster.group.group import WINDOW_BYTES
from cairnmq.cluster.group.member import GroupMember

from .memory_bus import MemoryBus, MemoryNetwork


def memory_member(network: MemoryNetwork, node: int, window_bytes: int = WINDOW_BYTES) -> GroupMember:
    """A process on that machine, not joined yet."""
    return on_bus(network.bus(node), network, window_bytes)


def on_bus(
    bus: MemoryBus, network: MemoryNetwork, window_bytes: int = WINDOW_BYTES, agreed: str = ""
) -> GroupMember:
    """Returns a member on *bus*, for tests that act on the bus."""
    return GroupMember(bus, network.clock, lambda: network.random.getrandbits(62) | 1, window_bytes, agreed=agreed)
