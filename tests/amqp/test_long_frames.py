"""Tests that frames compared with their predecessor (of long messages) have the effect of decoded frames."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from cairnmq.amqp.frames.peer_links import Half
from tests.harness.amqp.side import SENDERS, Side
from tests.harness.security import wire
from tests.harness.security.wire import FALSE, NULL, TRUE, attach, binary, frame, performative, uint

LONG_ZERO = b"\x70\0\0\0\0"
"""Handle 0 in an encoding that `uint` does not use."""
KINDS = (
    "begin", "continue", "bare", "end", "abort", "other tag", "other format", "settled", "malformed", "long handle",
    "reattach", "end of session", "short", "resume", "first tag",
)  # fmt: skip
SHORT_BYTES = 20
"""Frame size in a header that is shorter than the performative."""
Step = tuple[str, int, int]
"""A frame kind, a handle and a payload size."""


def frames_of(steps: list[Step]) -> list[bytes]:
    """Encode frames whose delivery-ids and delivery-tags increase with each new delivery."""
    said: list[bytes] = []
    number = 0
    for kind, handle, size in steps:
        if kind == "reattach":
            said.append(frame(performative(wire.DETACH, uint(handle), TRUE)))
            said.append(frame(attach(f"{SENDERS[handle]}{len(said)}", handle, "q", sends=True)))
            continue
        if kind == "end of session":
            said.append(frame(performative(wire.END)))
            continue
        number += kind in ("begin", "resume")
        tag = binary(b"wrong" if kind == "other tag" else number.to_bytes(4))
        fields = [uint(handle), uint(number), tag, uint(kind == "other format"), NULL, TRUE]
        if kind == "long handle":
            fields[0] = LONG_ZERO
        elif kind == "bare":
            fields[1:4] = NULL, NULL, NULL
        elif kind == "first tag":
            fields[1:3] = NULL, binary((1).to_bytes(4))
        elif kind == "end":
            fields[5] = FALSE
        elif kind == "settled":
            fields[4] = TRUE
        elif kind == "malformed":
            fields[5] = binary(b"x")
        elif kind == "abort":
            fields += [NULL, NULL, NULL, TRUE]
        elif kind == "resume":
            fields += [NULL, NULL, TRUE]
        encoded = frame(performative(wire.TRANSFER, *fields) + bytes([number]) * size)
        said.append(SHORT_BYTES.to_bytes(4) + encoded[4:] if kind == "short" else encoded)
    return said


class Forgetful(dict[bytes, Half]):
    """A cache that stores no entry, so that each frame is decoded."""

    def __setitem__(self, key: bytes, half: Half) -> None:
        pass


STEPS = st.tuples(
    st.sampled_from(("begin", "continue", "continue", "end", *KINDS)),
    st.sampled_from((0, 0, 0, 1)),
    st.sampled_from((0, 1, 500, 3000)),
)


@example([("begin", 0, 9), ("continue", 0, 9), ("long handle", 0, 9), ("end", 0, 9), ("continue", 0, 9)], [7])
@example([("begin", 0, 9), ("end", 0, 9), ("continue", 0, 9), ("bare", 0, 9)], [])
@example([(kind, 0, 9) for kind in ("begin", "first tag", "end", "resume", "first tag", "end")], [])
@example([("begin", 0, 9), ("short", 0, 9), ("end", 0, 9)], [])
@example([("begin", 0, 9), ("reattach", 0, 0), ("continue", 0, 9), ("end", 0, 9)], [])
@example([("begin", 0, 9), ("continue", 0, 9), ("end of session", 0, 0), ("continue", 0, 9)], [])
@given(st.lists(STEPS, min_size=1, max_size=12), st.lists(st.integers(0, 1 << 13), max_size=6))
def test_compared_frames_have_the_effect_of_decoded_ones(steps: list[Step], cuts: list[int]) -> None:
    compared, decoded, data = Side(), Side(), b"".join(frames_of(steps))
    decoded.engine._check._incomplete = Forgetful()
    for begin, end in pairwise([0, *sorted(cuts), len(data)]):
        if begin < end:
            compared.say(data[begin:end])
            decoded.say(data[begin:end])
    assert compared.state() == decoded.state()


def test_a_long_message_is_decoded_twice() -> None:
    side = Side()
    said = frames_of([("begin", 0, 9000), *[("continue", 0, 9000)] * 50, ("end", 0, 9000)])
    entered = side.entered(b"".join(said))
    assert [len(data) for data, *_ in side.seen["a"]] == [52 * 9000]
    assert entered["_check_transfer"] == 2
