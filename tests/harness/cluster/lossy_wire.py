"""A link that loses packets: it forwards all frames between two interfaces, and loses each with some probability.

`tc netem` does the same if the kernel supports it. This program runs anywhere, outside the kernel, from a seed:

    python -m tests.harness.cluster.lossy_wire ONE OTHER PERCENT SEED

It ends at the end of its input. Frames keep their metadata from the kernel (`PACKET_VNET_HDR`), such as checksums that
are still to be computed.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import sys

ALL_FRAMES = 0x0003
SOL_PACKET, ADD_MEMBERSHIP, VNET_HDR, IGNORE_OUTGOING = 263, 1, 15, 23
PROMISCUOUS = 1
MOST_BYTES = 1 << 17


def wire(name: str) -> socket.socket:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_FRAMES))
    end.setsockopt(SOL_PACKET, VNET_HDR, 1)
    end.setsockopt(SOL_PACKET, IGNORE_OUTGOING, 1)  # otherwise forwarded frames would be received here again
    end.bind((name, 0))
    asked = struct.pack("iHH8s", socket.if_nametoindex(name), PROMISCUOUS, 0, b"")
    end.setsockopt(SOL_PACKET, ADD_MEMBERSHIP, asked)
    end.setblocking(False)
    return end


def main() -> None:
    one, other = wire(sys.argv[1]), wire(sys.argv[2])
    loss, chance = float(sys.argv[3]) / 100, random.Random(int(sys.argv[4]))
    print("passing on", flush=True)
    while True:
        ready, _, _ = select.select([one, other, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        for source, target in ((one, other), (other, one)):
            if source not in ready:
                continue
            for _ in range(64):
                try:
                    frame = source.recv(MOST_BYTES)
                    if chance.random() >= loss:
                        target.send(frame)
                except OSError:  # no frame is left, or the other end accepts no more: that frame is lost as well
                    break


if __name__ == "__main__":
    main()
