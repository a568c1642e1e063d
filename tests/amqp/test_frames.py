"""What proton leaves out of frames is read and written, however the bytes are cut; and bad ones do no harm."""

from __future__ import annotations

from hypothesis import given
from hypothesis.strategies import binary, booleans, dictionaries, integers, lists

from cairnmq.amqp.codec.types import Described, Uint, Ulong
from cairnmq.amqp.frames.frame_reader import Incoming, Outgoing
from cairnmq.amqp.links.resume_state import UNKNOWN, encoded_state
from tests.harness.clients.resuming import attach_sender, transfer_begun
from tests.harness.router.raw import _parse, frame

MOST_BYTES = 4096


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[begin:end] for begin, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(
    dictionaries(binary(max_size=32), integers(0x23, 0x27), max_size=20),
    booleans(),
    lists(integers(0, 9999), max_size=5),
)
def test_an_attach_is_read_however_it_is_cut(states: dict[bytes, int], incomplete: bool, places: list[int]) -> None:
    asked = {tag: Described(Ulong(code), []) if code > 0x23 else None for tag, code in states.items()}
    data = bytes(8) + frame(0x18) + attach_sender("link", "q", asked, incomplete=incomplete)
    incoming = Incoming(MOST_BYTES, skip_bytes=8)
    parts = cut(data, places)
    for part in parts:
        incoming.feed(part)
    claims = UNKNOWN
    if parts[-1]:
        claims = incoming.claims("link", receives=False)
        assert claims.states == {tag: code if code > 0x23 else 0 for tag, code in states.items()}
        assert claims.complete is not incomplete
    assert incoming.claims("link", receives=False) == UNKNOWN, "each is told once"


@given(lists(booleans(), min_size=1, max_size=8))
def test_the_resume_flag_is_read(resumed: list[bool]) -> None:
    incoming = Incoming(MOST_BYTES)
    said = [transfer_begun(b"%d" % number, number, b"", more=False, resume=one) for number, one in enumerate(resumed)]
    incoming.feed(attach_sender("link", "q", None) + b"".join(said))
    assert [incoming.is_resumed("link", b"%d" % number) for number in range(len(resumed))] == resumed
    incoming.feed(b"")
    last = next((number for number in reversed(range(len(resumed))) if resumed[number]), -1)
    assert [number for number in range(len(resumed)) if incoming.is_resumed("link", b"%d" % number)] == (
        [last] if last >= 0 else []
    ), "more may come of the last one only"
    if last >= 0:
        incoming.is_complete("link", b"%d" % last)
        assert not incoming.is_resumed("link", b"%d" % last)


@given(lists(binary(max_size=80), max_size=6), lists(integers(0, 9999), max_size=3))
def test_bytes_that_are_no_frames_are_passed_over(bodies: list[bytes], places: list[int]) -> None:
    frames = [(len(body) + 8).to_bytes(4) + b"\x02\x00\x00\x00" + body for body in bodies]
    for data in (b"".join(frames), b"".join(bodies)):
        incoming = Incoming(MOST_BYTES)
        for part in cut(data, places):
            incoming.feed(part)
        assert incoming.claims("link", receives=False) == UNKNOWN


@given(integers(0, 40), integers(300, 2000), lists(integers(0, 99999), max_size=5))
def test_an_attach_tells_what_fits(count: int, most_bytes: int, places: list[int]) -> None:
    attach = frame(0x12, "link", Uint(0), True, None, None, None, None, None, None, None, Ulong(1 << 20))
    other = frame(0x12, "other", Uint(1), True)
    data = other + attach + frame(0x16, Uint(0))
    outgoing = Outgoing(most_bytes)
    tags = [b"%030d" % number for number in range(count)]
    outgoing.unsettled["link", True] = dict.fromkeys(tags, encoded_state(0x24))
    for part in cut(data, places):
        outgoing.feed(part)
    assert all(outgoing.ready)
    written = b"".join(outgoing.ready)
    assert written.startswith(other)
    assert written.endswith(frame(0x16, Uint(0)))
    raw = written[len(other) : len(written) - len(frame(0x16, Uint(0)))]
    told = _parse(raw).fields
    assert told[:7] == _parse(attach).fields[:7]
    assert told[10] == 1 << 20
    found = list(told[7] or {})
    assert found == tags[: len(found)]
    assert bool(told[8]) is (len(found) < count) is (("link", True) in outgoing.incomplete)
    assert len(raw) <= max(most_bytes, len(attach))
