"""Tests of frame fields that proton ignores: reading and writing, arbitrary splits of the input, invalid bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import given
from hypothesis.strategies import binary, booleans, dictionaries, integers, lists

from cairnmq.amqp.codec.types import Described, Uint, Ulong
from cairnmq.amqp.engine.engine import Engine
from cairnmq.amqp.frames.resume_transport import Outgoing
from cairnmq.amqp.links.credit import grant
from cairnmq.amqp.links.events import Limits
from cairnmq.amqp.links.link import Link
from cairnmq.amqp.links.resume_state import KeptLink, ResumeState, encoded_state
from cairnmq.amqp.native.buffer_pool import Buckets
from tests.harness.clients.resuming import attach_sender, transfer_begun
from tests.harness.router.raw import AMQP, _parse, begin, frame, opening

MOST_BYTES = 4096


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[begin:end] for begin, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@contextmanager
def engine_after(*parts: bytes) -> Iterator[Engine]:
    """Yield an engine that has processed *parts* and has not sent a response yet."""
    engine = Engine("broker", Limits(max_frame_bytes=MOST_BYTES), Buckets(1 << 20))
    feed(engine, *parts)
    yield engine
    engine.free()


def feed(engine: Engine, *parts: bytes) -> None:
    for part in parts:
        engine.push(part)
        engine.digest()


def resuming(link: Link) -> ResumeState:
    assert link.resuming is not None
    return link.resuming


@given(
    dictionaries(binary(max_size=32), integers(0x23, 0x27), max_size=20),
    booleans(),
    lists(integers(0, 9999), max_size=5),
)
def test_an_attach_is_read_however_it_is_cut(states: dict[bytes, int], incomplete: bool, places: list[int]) -> None:
    asked = {tag: Described(Ulong(code), []) if code > 0x23 else None for tag, code in states.items()}
    data = AMQP + opening() + begin() + attach_sender("link", "q", asked, incomplete=incomplete)
    with engine_after(*cut(data, places)) as engine:
        [link] = engine.endpoints.links.values()
        claims = resuming(link).claims
        assert claims.states == {tag: code if code > 0x23 else 0 for tag, code in states.items()}
        assert claims.complete is not incomplete


@given(lists(booleans(), min_size=1, max_size=8), booleans())
def test_the_resume_flag_is_read(resumed: list[bool], holds: bool) -> None:
    """The flag of a delivery's first transfer counts; its second transfer has none. A held link is covered, too."""
    said = [
        transfer_begun(b"%d" % number, number, b"part", more=more, resume=one and more)
        for number, one in enumerate(resumed)
        for more in (True, False)
    ]
    with engine_after(AMQP + opening() + begin() + attach_sender("link", "q", None)) as engine:
        [link] = engine.endpoints.links.values()
        engine.endpoints.open()
        engine.endpoints.open_link(link, None, kept=KeptLink({}, 300))
        grant(link, len(resumed))
        while output := engine.output():
            engine.consumed(len(output))
        if holds:
            engine.hold(link)
        feed(engine, *said)
        engine.go_on(link)
        state = resuming(link)
        tags = [tag for tag, _ in state.arrivals]
        assert dict(state.arrivals) == {b"%d" % number: one for number, one in enumerate(resumed)}
        assert list(dict.fromkeys(tags)) == [b"%d" % number for number in range(len(resumed))]
        assert not state.resumed, "each is complete"


@given(lists(binary(max_size=80), max_size=6), lists(integers(0, 9999), max_size=3))
def test_bytes_that_are_no_frames_are_passed_over(bodies: list[bytes], places: list[int]) -> None:
    frames = [(len(body) + 8).to_bytes(4) + b"\x02\x00\x00\x00" + body for body in bodies]
    for data in (b"".join(frames), b"".join(bodies)):
        with engine_after(AMQP + opening() + begin(), *cut(data, places)) as engine:
            assert not engine.endpoints.links


@given(integers(2, 255), lists(integers(0, 9999), max_size=4))
def test_empty_frame_with_an_extended_header_is_a_heartbeat(offset: int, places: list[int]) -> None:  # P7
    """The extended header is ignored (2.3.1), and the frames behind it are read, however the input is cut."""
    heartbeat = (4 * offset).to_bytes(4) + bytes((offset, 0, 0, 0)) + bytes(4 * offset - 8)
    data = AMQP + opening() + heartbeat + begin() + heartbeat + attach_sender("link", "q", {}, incomplete=False)
    with engine_after(*cut(data, places)) as engine:
        assert len(engine.endpoints.links) == 1


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
