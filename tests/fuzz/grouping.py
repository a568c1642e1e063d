"""Forged frames of the cluster group, sent to two members by a third process on the same bus."""

from __future__ import annotations

from functools import cache

from crc32c import crc32c

from cairnmq.cluster.group.bus import RingId
from cairnmq.cluster.group.frame import (
    VERSION,
    BadFrame,
    EventsFrame,
    HelloFrame,
    LostFrame,
    RefusalFrame,
    Seat,
    WelcomeFrame,
    decode,
    encode,
)
from cairnmq.cluster.group.group_events import MemberRefused
from cairnmq.cluster.group.member_id import MemberId
from tests.harness.cluster import total_order as order
from tests.harness.cluster.memory_bus import MemoryNetwork
from tests.harness.cluster.memory_group import memory_member


@cache
def said() -> tuple[bytes, ...]:
    """Return at least one frame of each kind."""
    members = [MemberId(node, 100 + node, 7 * node) for node in (1, 2, 3)]
    entries = tuple(Seat(member, 3) for member in members)
    return tuple(
        encode(frame)
        for frame in (
            HelloFrame(7, RingId(1, 4), 12345, 3, 3, False),
            HelloFrame(7, RingId(1, 4), 12345, 3, 3, True, "{}"),
            RefusalFrame(7, members[2], "it differs"),
            WelcomeFrame(14, members[2], 4, 99, 17, False, entries),
            EventsFrame(21, 1, 0, 4, 99, [b"one", b"", b"x" * 100]),
            EventsFrame(21, 1, 1, 4, 99, []),
            LostFrame(21, 2),
        )
    )


class Grouped:
    """Members 1 and 2, which must keep working regardless of the frames from node 3."""

    def __init__(self) -> None:
        self.network = MemoryNetwork(3)
        self.members = [memory_member(self.network, node) for node in (1, 2)]
        self.bus = self.network.bus(3)
        for member in self.members:
            member.join("fuzz")
        self.bus.join("fuzz")
        self.lives: list[list[object]] = [[], []]
        self.step(300)

    def step(self, times: int) -> None:
        for _ in range(times):
            self.network.clock.advance(0.01)
            for member, received in zip(self.members, self.lives, strict=True):
                received += member.step()
            self.bus.inbox.clear()

    def hear(self, data: bytes) -> None:
        """Send *data* unchanged, with a valid checksum, and with the identifiers of the current configuration."""
        for each in (data, _fitting(data), _fitting(self._knowing(data))):
            self.bus.send(each)
            try:
                assert encode(decode(each)) == each
            except BadFrame:
                pass
        self.step(1)

    def _knowing(self, data: bytes) -> bytes:
        """Return a hello or events frame of *data* with the current ring, digest and view; other data unchanged."""
        membership = self.members[0]._membership
        assert membership is not None
        try:
            frame = decode(_fitting(data))
        except BadFrame:
            return data
        if isinstance(frame, HelloFrame):
            return encode(HelloFrame(21, membership.ring, membership._digest, frame.view, 3, frame.forced))
        if isinstance(frame, EventsFrame):
            return encode(EventsFrame(21, frame.seq, frame.received, membership.view, membership.state, frame.payloads))
        return data

    def check(self) -> None:
        """Check that both members are in the group and deliver the same events, their own multicasts included."""
        self.bus.close()
        self.step(3000)
        ids = [member.me for member in self.members]
        assert all(ids), ids
        for member in self.members:
            assert member.multicast(b"the end")
        self.step(300)
        order.check([[event for event in received if not isinstance(event, MemberRefused)] for received in self.lives])  # type: ignore[misc]
        for received in self.lives:
            assert sum("the end" in str(event) for event in received[-10:]) == 2


def _fitting(data: bytes) -> bytes:
    rest = b"CMg" + bytes([VERSION]) + data[8:]
    return crc32c(rest).to_bytes(4, "little") + rest
