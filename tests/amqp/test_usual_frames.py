"""Tests that the patterns for usual flows and dispositions accept only frames that the field tables accept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.amqp.codec.primitives import Malformed
from cairnmq.amqp.frames.frame_fields import DISPOSITION, FLOW, Invalid, check, read
from cairnmq.amqp.frames.usual_frames import NO_HANDLE, accepted_by, flow_of

UINTS = st.sampled_from([b"\x43", b"\x52\x00", b"\x52\xff", b"\x70\x00\x00\x00\x07", b"\x70\xff\xff\xff\xff"])
BOOLEANS = st.sampled_from([b"\x41", b"\x42", b"\x56\x00", b"\x56\x01"])
OUTCOMES = st.sampled_from([b"\x00\x53\x24\x45", b"\x00\x53\x26\xc0\x01\x00", b"\x00\x53\x25\x45", b"\x00\x53\x27\x45"])
NULLS = st.just(b"\x40")
STRAY = st.sampled_from([b"\xa0\x01x", b"\x50\x01", b"\x56\x02", b"\x53\x01", b"\x45", b""])
KINDS = {
    FLOW: [UINTS] * 8 + [BOOLEANS] * 2,
    DISPOSITION: [BOOLEANS, UINTS, UINTS, BOOLEANS, OUTCOMES, BOOLEANS],
}


@st.composite
def frames(draw: st.DrawFn) -> tuple[int, bytes]:
    """Draw flows and dispositions, most of them valid; others have a field of a wrong type or wrong counts."""
    code = draw(st.sampled_from([FLOW, DISPOSITION]))
    kinds = KINDS[code][: draw(st.integers(0, len(KINDS[code])))]
    fields = [draw(st.one_of(kind, kind, kind, NULLS)) for kind in kinds]
    if fields and draw(st.integers(0, 9)) == 0:
        fields[draw(st.integers(0, len(fields) - 1))] = draw(STRAY)
    content = b"".join(fields)
    count = len(fields) + draw(st.sampled_from([0] * 20 + [-1, 1])) & 0xFF
    size = len(content) + 1 + draw(st.sampled_from([0] * 20 + [-1, 1])) & 0xFF
    body = bytes([0, 0x53, code, 0xC0, size, count]) + content
    return code, (len(body) + 8).to_bytes(4) + bytes([2, 0, 0, 0]) + body


@given(frames(), st.binary(max_size=8), st.binary(max_size=8))
def test_accepted_frames_are_valid(frame: tuple[int, bytes], before: bytes, behind: bytes) -> None:  # D5
    code, content = frame
    data, at, stop = before + content + behind, len(before), len(before) + len(content)
    if code == DISPOSITION:
        flow, count = None, accepted_by(data, at, stop)
        is_accepted = count is not None
    else:
        flow = flow_of(data, at, stop)
        is_accepted = flow is not None
    if not is_accepted:
        return
    fields = read(content, 11)
    check(code, fields.raw)
    if code == FLOW:
        assert not fields.is_set(8)
        assert not fields.is_set(9)
        limit = (fields.number(5) or 0) + (fields.number(6) or 0)
        assert flow == (NO_HANDLE if fields.number(4) is None else fields.number(4), limit)
    else:
        last = fields.number(2)
        first = fields.number(1) or 0
        assert last is None or (last - first) & 0xFFFFFFFF < 1 << 31
        is_accepted = len(fields.raw) > 4 and fields.raw[4][:3] == b"\x00\x53\x24"
        is_final = fields.is_set(0) and fields.is_set(3) and is_accepted
        assert count == (((first if last is None else last) - first & 0xFFFFFFFF) + 1 if is_final else 0)


@given(frames())
def test_valid_frames_are_accepted(frame: tuple[int, bytes]) -> None:
    """Valid frames of the usual form are accepted without decoding, except drains, echoes and backward ranges."""
    code, content = frame
    try:
        fields = read(content, 11)
        check(code, fields.raw)
    except (Invalid, Malformed, IndexError, TypeError):
        return
    if code == FLOW:
        assert (flow_of(content, 0, len(content)) is None) == (
            fields.is_set(8) or fields.is_set(9) or any(raw in (b"\x56\x02",) for raw in fields.raw)
        )
    elif accepted_by(content, 0, len(content)) is not None:
        return
    else:
        last = fields.number(2)
        is_backward = last is not None and (last - (fields.number(1) or 0)) & 0xFFFFFFFF >= 1 << 31
        is_unusual = any(raw[:3] == b"\x00\x53\x25" or raw == b"\x56\x02" for raw in fields.raw)
        assert is_backward or is_unusual
