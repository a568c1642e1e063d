"""Tests of the server handshake: every valid and invalid beginning of a connection, in arbitrary pieces."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from proton import Connection, Transport

from cairnmq.amqp.frames.frame_fields import CHALLENGE
from cairnmq.amqp.sasl.frames import MAX_SASL_FRAME_BYTES, SASL_HEADER, sasl_frame
from cairnmq.amqp.sasl.handshake import MAX_SASL_FRAMES, Stage
from cairnmq.amqp.sasl.server import Challenge, Exchange, Login
from cairnmq.amqp.sasl.server_handshake import AMQP_HEADER, ServerHandshake
from cairnmq.base.accounts.credentials import FEWEST_ITERATIONS, make


def frame(body: bytes, *, size: int | None = None, offset: int = 2, kind: int = 1) -> bytes:
    return (len(body) + 8 if size is None else size).to_bytes(4) + bytes((offset, kind, 0, 0)) + body


def init(mechanism: str, response: bytes = b"") -> bytes:
    fields = b"\xa3" + bytes((len(mechanism),)) + mechanism.encode() + b"\xa0" + bytes((len(response),)) + response
    return frame(b"\x00\x53\x41\xc0" + bytes((len(fields) + 1, 2)) + fields)


OPEN = b"\x00\x00\x00\x15\x02\x00\x00\x00\x00\x53\x10\xc0\x08\x01\xa1\x05peer"
GOOD = SASL_HEADER + init("ANONYMOUS") + AMQP_HEADER + OPEN
BEGINNINGS = {
    "anonymous": GOOD,
    "anonymous, with a trace": SASL_HEADER + init("ANONYMOUS", b"me") + AMQP_HEADER + OPEN,
    "without SASL": AMQP_HEADER + OPEN,
    "a mechanism not offered": SASL_HEADER + init("PLAIN", b"\x00guest\x00guest") + AMQP_HEADER + OPEN,
    "SASL twice": SASL_HEADER + init("ANONYMOUS") + SASL_HEADER,
    "TLS": b"AMQP\x02\x01\x00\x00",
    "another version": b"AMQP\x00\x00\x09\x01",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "TLS hello": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
    "an AMQP frame where SASL is due": SASL_HEADER + frame(b"", kind=0),
    "too large": SASL_HEADER + frame(b"", size=MAX_SASL_FRAME_BYTES + 1),
    "too small": SASL_HEADER + frame(b"", size=7),
    "an offset behind the end": SASL_HEADER + frame(b"", offset=3),
    "an offset in the head": SASL_HEADER + frame(b"\x00\x53\x41\x45", offset=1),
    "no init": SASL_HEADER + frame(b"\x00\x53\x43\xc0\x03\x01\xa0\x00"),
    "an empty init": SASL_HEADER + frame(b"\x00\x53\x41\x45"),
    "an empty frame": SASL_HEADER + frame(b""),
    "no list": SASL_HEADER + frame(b"\x00\x53\x41\xa1\x01x"),
    "rubbish": SASL_HEADER + frame(b"\xff" * 20),
}
Result = tuple[bytes, bytes, Stage, str]


def run(pieces: Sequence[bytes], *, anonymous: bool = True) -> Result:
    """Feed *pieces* to a handshake as a terminal does; return its responses and the bytes for the engine."""
    front = ServerHandshake(Login(anonymous=anonymous))
    answer, rest = b"", b""
    for piece in pieces:
        if front.stage is Stage.REFUSED:
            break
        if front.stage is Stage.OPEN:
            rest += piece
            continue
        more_answer, more_rest = front.feed(piece)
        answer += more_answer
        rest += more_rest
    return answer, rest, front.stage, front.reason


def pieces_of(data: bytes, cuts: set[int]) -> list[bytes]:
    ends = [*sorted(cut for cut in cuts if 0 < cut < len(data)), len(data)]
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("beginning", BEGINNINGS.values(), ids=BEGINNINGS.keys())
@pytest.mark.parametrize("anonymous", [True, False])
def test_every_split_comes_to_the_same(beginning: bytes, anonymous: bool) -> None:
    """The result does not depend on the split; an invalid beginning may be refused before it is complete."""
    answer, rest, stage, _ = run([beginning], anonymous=anonymous)
    for cut in range(1, len(beginning)):
        assert run([beginning[:cut], beginning[cut:]], anonymous=anonymous)[:3] == (answer, rest, stage)
    single = [bytes((byte,)) for byte in beginning]
    assert run(single, anonymous=anonymous)[:3] == (answer, rest, stage)


@given(data=st.sampled_from(sorted(BEGINNINGS.values())) | st.binary(max_size=80), cuts=st.sets(st.integers(1, 100)))
@example(data=GOOD, cuts={8, 9, 12})
def test_any_pieces_come_to_the_same(data: bytes, cuts: set[int]) -> None:
    assert run(pieces_of(data, cuts))[:3] == run([data])[:3]


@given(data=st.binary(max_size=600), at=st.integers(0, len(GOOD)))
def test_rubbish_is_refused_or_waited_for(data: bytes, at: int) -> None:
    """Random bytes raise no error, and a bounded amount is buffered before the login."""
    front = ServerHandshake(Login())
    front.feed(GOOD[:at])
    if front.stage is Stage.OPEN:
        return
    front.feed(data)
    assert len(front._held) <= MAX_SASL_FRAME_BYTES
    assert bool(front.reason) == refused(front)
    assert not (refused(front) and front._held)


def refused(front: ServerHandshake) -> bool:
    return front.stage is Stage.REFUSED


@pytest.mark.parametrize("name", ["anonymous", "anonymous, with a trace", "without SASL"])
def test_the_way_in(name: str) -> None:
    answer, rest, stage, _ = run([BEGINNINGS[name]])
    assert stage is Stage.OPEN
    assert rest == AMQP_HEADER + OPEN
    assert answer[:8] == (b"" if name == "without SASL" else SASL_HEADER)


@pytest.mark.parametrize(
    "name", [name for name in BEGINNINGS if not name.startswith("anonymous") and name != "without SASL"]
)
def test_refused(name: str) -> None:
    """A refused handshake has a reason and passes no bytes to the engine."""
    _, rest, stage, reason = run([BEGINNINGS[name]])
    assert stage is Stage.REFUSED
    assert rest == b""
    assert reason


@pytest.mark.parametrize("beginning", BEGINNINGS.values(), ids=BEGINNINGS.keys())
def test_where_a_name_is_needed_nobody_comes_in_without(beginning: bytes) -> None:
    assert run([beginning], anonymous=False)[1:3] == (b"", Stage.REFUSED)


@pytest.mark.parametrize("anonymous", [True, False])
@pytest.mark.parametrize("sasl", [True, False])
def test_protons_client_understands(anonymous: bool, sasl: bool) -> None:
    """A proton client opens the connection if permitted, and receives the error otherwise."""
    connection, transport = Connection(), Transport()
    if sasl:
        transport.sasl().allowed_mechs("ANONYMOUS")
    transport.bind(connection)
    connection.open()
    front = ServerHandshake(Login(anonymous=anonymous))
    rest = b""
    for _ in range(10):
        pending = transport.pending()
        if pending <= 0 or front.stage in (Stage.OPEN, Stage.REFUSED):
            break
        sent = transport.peek(pending)
        transport.pop(pending)
        answer, rest = front.feed(bytes(sent))
        if answer and transport.capacity() > 0:
            transport.push(answer)
    assert (front.stage is Stage.OPEN) == anonymous
    assert (transport.condition is None) == anonymous
    assert rest.startswith(AMQP_HEADER) == anonymous


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("pieces", [1, 40])
def test_a_login_has_a_bounded_number_of_answers(mechanism: str, pieces: int) -> None:
    """W1: the first response without a value ends the login, also if many arrive in one piece."""
    front = ServerHandshake(Login(lambda name: make("a password", FEWEST_ITERATIONS), anonymous=False, insecure=True))
    front.feed(SASL_HEADER)
    field = b"\xa3" + bytes((len(mechanism),)) + mechanism.encode()
    begun, _ = front.feed(frame(b"\x00\x53\x41\xc0" + bytes((len(field) + 1, 1)) + field))
    nothing = frame(b"\x00\x53\x43\xc0\x02\x01\x40") * 400
    size = len(nothing) // pieces
    answer = b"".join(front.feed(nothing[at : at + size])[0] for at in range(0, len(nothing), size))
    assert begun == sasl_frame(CHALLENGE, b"\xa0\x00")
    assert refused(front)
    assert answer == b""
    assert front._held == b""


def _listening() -> Exchange:
    """Simulate a SASL mechanism that requests responses without end."""
    while True:
        yield Challenge(b"go on")


def test_a_login_has_a_bounded_number_of_frames() -> None:
    """W1: a login is refused after `MAX_SASL_FRAMES` challenges, whatever the mechanism requests."""
    front = ServerHandshake(Login())
    front.feed(SASL_HEADER)
    front._exchange = _listening()
    next(front._exchange)
    answer, _ = front.feed(frame(b"\x00\x53\x43\xc0\x03\x01\xa0\x00") * 400)
    assert refused(front)
    assert answer.count(b"go on") == MAX_SASL_FRAMES
