"""Tests of begin frames with a remote channel, and of frames without a session (2.5.1, 2.7.2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.amqp.codec.types import Uint, Ushort
from cairnmq.amqp.engine.engine import Engine
from cairnmq.amqp.links.attach import Attach, End
from cairnmq.amqp.links.events import Event, EventKind, Limits
from cairnmq.amqp.links.link import Link
from cairnmq.amqp.native.buffer_pool import Buckets
from cairnmq.amqp.native.proton_ffi import NULL
from tests.harness.process import broker
from tests.harness.router import raw
from tests.harness.router.raw import AMQP, Raw, attach, begin, frame, opening

ROUNDS = 3


def answer(remote_channel: int, channel: int) -> bytes:
    return frame(raw.BEGIN, Ushort(remote_channel), Uint(0), Uint(9), Uint(9), channel=channel)


def test_begin_for_a_session_of_the_client_does_not_end_the_broker(tmp_path: Path) -> None:
    """A begin with the remote channel of a client session closes the connection; proton used a freed session."""
    with broker(tmp_path / "store") as running:
        for _ in range(ROUNDS):
            with Raw(running.port, opening(), begin()) as one:
                one.until("begin")
                one.say(answer(0, 5), frame(raw.END, channel=5), frame(raw.END))
                one.say(*[attach(f"a{number}" * 40, number, "q") for number in range(4)])
                frames = one.rest()
                assert frames[-1].name == "close"
                assert frames[-1].error == "amqp:not-allowed"
        assert running.process.poll() is None


@pytest.mark.parametrize("code", [raw.ATTACH, raw.FLOW, raw.TRANSFER, raw.DISPOSITION, raw.DETACH, raw.END])
def test_frames_without_a_session_close_the_connection(code: int) -> None:
    said = {
        raw.ATTACH: attach("l", 0, "q", channel=3),
        raw.FLOW: frame(raw.FLOW, Uint(0), Uint(9), Uint(0), Uint(9), channel=3),
        raw.TRANSFER: raw.transfer(0, 0, channel=3),
        raw.DISPOSITION: frame(raw.DISPOSITION, False, Uint(0), channel=3),
        raw.DETACH: frame(raw.DETACH, Uint(0), channel=3),
        raw.END: frame(raw.END, channel=3),
    }[code]
    one = Conversation(begin())
    assert one.say(said) == "amqp:not-allowed: channel 3 has no session (2.5.1)"


def test_answers_to_sessions_of_this_side_are_taken() -> None:
    one = Conversation()
    one.ask()
    one.ask()
    assert not one.say(answer(1, 1), answer(0, 0))
    assert not one.say(frame(raw.END, channel=0), frame(raw.END, channel=1))


@pytest.mark.parametrize("asks_again", [False, True], ids=["nothing waits", "another one waits"])
def test_second_answer_to_a_session_closes_the_connection(asks_again: bool) -> None:
    one = Conversation()
    one.ask()
    assert not one.say(answer(0, 0))
    if asks_again:
        one.ask()
    ends = frame(raw.END, channel=5), frame(raw.END, channel=0)
    assert one.say(answer(0, 5), *ends, attach("l", 0, "q")).startswith("amqp:not-allowed")


def test_answer_to_a_session_of_the_peer_closes_the_connection_though_another_one_waits() -> None:
    one = Conversation(begin())
    one.ask()
    ends = frame(raw.END, channel=5), frame(raw.END, channel=0)
    assert one.say(answer(0, 5), *ends, attach("l", 0, "q")).startswith("amqp:not-allowed")


class Conversation:
    """An engine whose peer has opened the connection."""

    def __init__(self, *said: bytes) -> None:
        self.engine = Engine("broker", Limits(), Buckets(1 << 20))
        self.say(AMQP, opening(), *said)

    def say(self, *said: bytes) -> str:
        """Return the reason with which the engine closed the connection; empty if the connection is open."""
        self.engine.push(b"".join(said))
        self.engine.digest()
        events: list[Event] = self.engine.endpoints.events
        self.engine.endpoints.events = []
        for event in events:
            if event.kind is EventKind.OPENED:
                self.engine.endpoints.open()
        self._take_output()
        return next((event.text for event in events if event.kind is EventKind.CLOSED), "")

    def ask(self) -> None:
        """Attach a link of this side on a new session."""
        link = Link(NULL, NULL, "asked", sender=True)
        self.engine.endpoints.attach(link, Attach("asked", End(), End()))
        self._take_output()

    def _take_output(self) -> None:
        while output := self.engine.output():
            self.engine.consumed(len(output))
