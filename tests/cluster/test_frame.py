"""Tests of frames: an encoded frame decodes to the same frame, and other bytes are refused."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.cluster.group.bus import RingId
from cairnmq.cluster.group.frame import (
    LARGEST,
    BadFrame,
    EventsFrame,
    ExpulsionFrame,
    Frame,
    HelloFrame,
    LostFrame,
    RefusalFrame,
    Seat,
    WelcomeFrame,
    decode,
    encode,
)
from cairnmq.cluster.group.group import MAX_PAYLOAD_BYTES
from cairnmq.cluster.group.member_id import MemberId

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
COUNT = st.integers(0, LARGEST)
SOME = st.integers(1, 2**64 - 1)
MEMBER = st.builds(MemberId, U32, U32, U64)
RING = st.builds(RingId, U32, U64)
TEXT = st.text(max_size=50)
FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.builds(EventsFrame, SOME, COUNT, COUNT, COUNT, U64, st.lists(st.binary(max_size=200), max_size=20)),
    st.builds(HelloFrame, SOME, RING, U64, COUNT, st.integers(1, 2**32 - 1), st.booleans(), TEXT),
    st.builds(
        WelcomeFrame, SOME, MEMBER, COUNT, U64, COUNT, st.booleans(),
        st.lists(st.builds(Seat, MEMBER, COUNT), min_size=1, max_size=9).map(tuple),
    ),
    st.builds(LostFrame, SOME, COUNT),
    st.builds(RefusalFrame, SOME, MEMBER, TEXT),
    st.builds(ExpulsionFrame, SOME, MEMBER, COUNT),
)  # fmt: skip


@given(frame=FRAMES)
def test_what_is_said_is_heard(frame: Frame) -> None:
    assert decode(encode(frame)) == frame


@given(frame=FRAMES, at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed(frame: Frame, at: int, bit: int) -> None:
    good = bytearray(encode(frame))
    good[at % len(good)] ^= 1 << bit
    with pytest.raises(BadFrame):
        decode(bytes(good))


USED = {1: "", 2: "view state", 3: "seq heard view state", 4: "seq", 5: "", 6: ""}
"""The header fields that each kind uses, as in the table of the module."""
OFFSETS = {"seq": 20, "heard": 28, "view": 36, "state": 44}


@pytest.mark.parametrize("field", OFFSETS)
@given(frame=FRAMES)
def test_field_that_a_kind_does_not_use_is_refused(frame: Frame, field: str) -> None:
    data = bytearray(encode(frame))
    data[OFFSETS[field] : OFFSETS[field] + 8] = (7).to_bytes(8, "little")
    data[:4] = crc32c(bytes(data[4:])).to_bytes(4, "little")
    if field in USED[data[8]].split():
        assert encode(decode(bytes(data))) == data
    else:
        with pytest.raises(BadFrame, match="fields of another kind"):
            decode(bytes(data))


@given(frame=FRAMES, count=st.integers(0, 3), extra=st.binary(max_size=40))
def test_body_of_another_size_is_refused_or_another_frame(frame: Frame, count: int, extra: bytes) -> None:
    data = bytearray(encode(frame) + extra)
    data[10:12] = count.to_bytes(2, "little")
    data[:4] = crc32c(bytes(data[4:])).to_bytes(4, "little")
    try:
        found = decode(bytes(data))
    except BadFrame:
        return
    assert encode(found) == data


@given(data=st.binary(max_size=300))
def test_other_bytes_are_no_frame(data: bytes) -> None:
    with pytest.raises(BadFrame):
        decode(data)


def test_sizes() -> None:
    largest = EventsFrame(1, 1, 0, 0, 0, [bytes(MAX_PAYLOAD_BYTES)] * 3)
    assert decode(encode(largest)) == largest
    with pytest.raises(BadFrame, match="an event of 65537 bytes exceeds the limit of 65536"):
        decode(encode(EventsFrame(1, 1, 0, 0, 0, [bytes(MAX_PAYLOAD_BYTES + 1)])))


@pytest.mark.parametrize(
    "frame",
    [
        HelloFrame(1, RingId(1, 4), 1, LARGEST + 1, 3, False),
        EventsFrame(1, 1, 0, LARGEST + 1, 0, []),
        EventsFrame(1, LARGEST + 1, 0, 0, 0, []),
        WelcomeFrame(1, MemberId(1, 2, 3), 1, 1, LARGEST + 1, False, (Seat(MemberId(1, 2, 3), 1),)),
        WelcomeFrame(1, MemberId(1, 2, 3), 1, 1, 1, False, (Seat(MemberId(1, 2, 3), LARGEST + 1),)),
        HelloFrame(1, RingId(1, 4), 1, 1, 0, False),
        EventsFrame(0, 1, 0, 0, 0, []),
    ],
)
def test_numbers_that_would_not_fit_one_day(frame: Frame) -> None:
    with pytest.raises(BadFrame):
        decode(encode(frame))
