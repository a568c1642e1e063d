"""Tests that only dispositions with equal outcomes of consecutive deliveries are processed as a run."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.amqp.codec.primitives import descriptor
from cairnmq.amqp.codec.types import Uint
from cairnmq.amqp.frames import performatives as p
from cairnmq.amqp.frames.frame_runs import is_disposition, outcomes_alike

STATES = (
    p.described(p.TRANSACTIONAL, b"\0\0\0\1", p.ACCEPTED_STATE),
    p.described(p.TRANSACTIONAL, b"\0\0\0\2", p.ACCEPTED_STATE),
    p.ACCEPTED_STATE, p.described(p.RELEASED), p.described(p.REJECTED, "a" * 300), None,
)  # fmt: skip
Word = tuple[bool, int, int | None, bool, Any]


def read(frame: bytes) -> list[Any]:
    return p.fields_of(frame, descriptor(frame, 8)[1], 5)


def one_by_one(data: bytes) -> list[Any]:
    found = []
    while data:
        size = int.from_bytes(data[:4])
        role, first, last, settled, state = read(data[:size])[:5]
        found += [(role, number, settled, state) for number in range(first, (first if last is None else last) + 1)]
        data = data[size:]
    return found


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    frames, at = b"", draw(st.sampled_from([0, 200, 1000, (1 << 32) - 120]))
    for _ in range(draw(st.integers(1, 6))):
        state, settled, role = draw(st.sampled_from(STATES)), draw(st.booleans()), draw(st.booleans())
        says_last, wide = draw(st.booleans()), draw(st.sampled_from([0, 0, 0, 1]))
        for _ in range(draw(st.integers(1, 6))):
            last = Uint(at + wide) if says_last or wide else None
            frames += p.frame(p.DISPOSITION, role, Uint(at), last, settled, state)
            at += draw(st.sampled_from([1, 1, 1, 1, 2])) + wide
    return frames


@given(streams())
def test_runs_say_what_their_frames_say(data: bytes) -> None:
    found, rest = [], data
    while rest:
        size = int.from_bytes(rest[:4])
        assert is_disposition(rest[:size])
        count = outcomes_alike(memoryview(rest), size)
        assert count * size <= len(rest)
        role, first, last, settled, state = read(rest[:size])[:5]
        last = first + count - 1 if count > 1 else first if last is None else last
        found += [(role, number, settled, state) for number in range(first, last + 1)]
        rest = rest[count * size :]
    assert found == one_by_one(data)


def test_a_run_is_one() -> None:
    """100 equal dispositions form one run; shorter runs would be slow but have the same results."""
    frames = b"".join(p.frame(p.DISPOSITION, True, Uint(number), None, True, STATES[0]) for number in range(300, 400))
    assert outcomes_alike(memoryview(frames), len(frames) // 100) == 100
