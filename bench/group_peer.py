"""Process of a peer node of the measured member, which receives all events of the group and all frames of the bus.

`python -m bench.group_peer NAME` runs in the namespace of its node and exits at the end of its standard input.
"""

from __future__ import annotations

import select
import sys

from cairnmq.base.clock import SystemClock
from cairnmq.cluster.group.corosync import CorosyncBus
from cairnmq.cluster.group.member import GroupMember


def main(name: str) -> None:
    member, bus = GroupMember(CorosyncBus(), SystemClock()), CorosyncBus()
    member.join(name)
    bus.join(f"{name}-bus")
    print("here", flush=True)
    while True:
        waits = [wait_s for wait_s in (member.wait_s(), bus.wait_s()) if wait_s is not None]
        ready, _, _ = select.select([sys.stdin, member, bus], [], [], min(waits, default=None))
        if sys.stdin in ready:
            return
        member.step()
        for _ in bus.poll(256):
            pass


if __name__ == "__main__":
    main(sys.argv[1])
