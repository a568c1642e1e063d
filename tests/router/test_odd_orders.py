"""Clients that send frames in an order, or with numbers, that no library would: frame by frame, to a complete broker.

Serial numbers (transfers, deliveries, counts of links) wrap around at 2^32. A message that was accepted is on the queue
once, one that was not settled is not lost, and frames about unknown deliveries change nothing.
"""

from __future__ import annotations

from typing import Any

import pytest

from cairnmq.amqp.codec.types import Described, Ubyte, Uint, Ulong
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.clients.peers import Peer
from tests.harness.router import raw
from tests.harness.router.raw import Frame, Raw, Say, frame
from tests.harness.security.wire import message

WRAPS = 1 << 32
RECEIVED, ACCEPTED, RELEASED = 0x23, 0x24, 0x26


def number(value: int) -> Uint:
    return Uint(value % WRAPS)


def begin(first: int = 0, window: int = 2048, channel: int = 0) -> bytes:
    return frame(raw.BEGIN, None, number(first), Uint(window), Uint(2048), channel=channel)


def attach(name: str, handle: int, *, receives: bool = False, first: int = 0, second: bool = False) -> bytes:
    source, target = ("q", None) if receives else (None, "q")
    fields = (
        name, Uint(handle), receives, Ubyte(2), Ubyte(int(second)),
        Described(Uint(raw.SOURCE), [source]), Described(Uint(raw.TARGET), [target]), None, None,
        None if receives else number(first),
    )  # fmt: skip
    return frame(raw.ATTACH, *fields)


def transfer(id_: int | None, text: str, *, handle: int = 0, tag: bytes | None = None, more: bool = False) -> bytes:
    tag = tag if tag is not None or id_ is None else number(id_).to_bytes(4)
    id_field = None if id_ is None else number(id_)
    return frame(raw.TRANSFER, Uint(handle), id_field, tag, Uint(0), False, more, payload=message(text, durable=True))


def disposition(
    first: int, last: int | None, code: int | None, *, receiver: bool = True, settled: bool = True
) -> bytes:
    fields = [Uint(0), Ulong(0)] if code == RECEIVED else []
    state = None if code is None else Described(Ulong(code), fields)
    last_field = None if last is None else number(last)
    return frame(raw.DISPOSITION, receiver, number(first), last_field, settled, state)


def flow(
    handle: int | None = None, count: int = 0, credit: int = 0, *, window: int = 2048, received: int = 0,
    drain: bool = False, echo: bool = False,
) -> bytes:  # fmt: skip
    """Encode a flow; *received* is its next-incoming-id."""
    link = (None, None, None) if handle is None else (Uint(handle), number(count), Uint(credit))
    ids = number(received), Uint(window), number(0), Uint(2048)
    return frame(raw.FLOW, *ids, *link, None, drain, echo)


def sending(say: Say) -> Raw:
    """Open a connection with a sender link that has credit."""
    one = say(attach("s", 0))
    while len(credit := one.until("flow").fields) < 7 or credit[4] is None:
        pass
    return one


def accepted(one: Raw, count: int) -> list[int]:
    """Wait until *count* deliveries are accepted; return their numbers."""
    found: list[int] = []
    while len(found) < count:
        fields = one.until("disposition").fields
        assert fields[4].descriptor == ACCEPTED
        last = fields[1] if fields[2] is None else fields[2]
        found += [(fields[1] + at) % WRAPS for at in range((last - fields[1]) % WRAPS + 1)]
    return found


def texts(frames: list[Frame]) -> list[str]:
    return [one.payload[-1:].decode() for one in frames]


def fill(peer: Peer, *contents: str) -> None:
    peer.put(peer.sender("q"), contents, durable=True)


def bodies(peer: Peer) -> list[Any]:
    found = [one.body for one in peer.drain(peer.receiver("q"), 100)]
    peer.settle_down()
    return found


@pytest.mark.parametrize("first", [WRAPS - 1, WRAPS - 2, WRAPS - 3, (1 << 31) - 2])
def test_numbers_wrap_on_a_link_that_sends(say: Say, peer: Peer, first: int) -> None:
    one = say(attach("s", 0, first=first), session=begin(first))
    while len(credit := one.until("flow").fields) < 7 or credit[4] is None:
        pass
    assert credit[5] in (None, first), "the count of deliveries is the sender's"
    one.say(*[transfer(first + at, "abcdef"[at]) for at in range(6)])
    assert sorted(accepted(one, 6)) == sorted((first + at) % WRAPS for at in range(6))
    one.say(disposition(first, first + 5, ACCEPTED, receiver=False))
    one.say(transfer(first + 6, "g"))
    assert accepted(one, 1) == [(first + 6) % WRAPS]
    assert bodies(peer) == [*"abcdefg"]


@pytest.mark.parametrize("count", [WRAPS - 1, WRAPS - 2, WRAPS // 2])
def test_a_receivers_count_of_deliveries_may_be_behind_as_far_as_it_likes(say: Say, peer: Peer, count: int) -> None:
    """Credit is the link credit plus the count, less the sent deliveries: a count from before zero wraps."""
    fill(peer, *"abc")
    one = say(attach("r", 0, receives=True), flow(0, count, (2 - count) % WRAPS))
    assert texts([one.until("transfer") for _ in range(2)]) == ["a", "b"]
    one.say(disposition(0, 1, ACCEPTED), frame(raw.CLOSE))
    assert not [found for found in one.rest() if found.name == "transfer"]
    assert bodies(peer) == ["c"]


def test_a_count_that_is_ahead_takes_credit_away(say: Say, peer: Peer) -> None:
    fill(peer, "a")
    one = say(attach("r", 0, receives=True), flow(0, 0, 0), flow(0, WRAPS - 10, 5))
    one.until("attach")
    one.say(frame(raw.CLOSE))
    assert not [found for found in one.rest() if found.name == "transfer"]
    assert bodies(peer) == ["a"]


def test_draining_without_credit_brings_nothing(say: Say, peer: Peer) -> None:
    """Proton does not respond to that; credit that is granted later works as if there had been no drain."""
    fill(peer, "a")
    one = say(
        attach("r", 0, receives=True), *[flow(0, 0, 0, drain=True, echo=True)] * 3, flow(echo=True), flow(0, 0, 1)
    )
    assert texts([one.until("transfer")]) == ["a"]


def test_a_window_of_nothing_keeps_messages_back(say: Say, peer: Peer) -> None:
    fill(peer, *"abc")
    one = say(attach("r", 0, receives=True), flow(0, 0, 10, window=0), session=begin(window=0))
    one.until("attach")
    one.say(flow(window=0), flow(window=2))
    assert texts([one.until("transfer") for _ in range(2)]) == ["a", "b"]
    one.say(flow(window=5, received=2))
    assert texts([one.until("transfer")]) == ["c"]


def test_a_window_wraps_too(say: Say, peer: Peer) -> None:
    """The client's next incoming ID is from before the first transfer, which reduces its window."""
    fill(peer, *"abc")
    one = say(attach("r", 0, receives=True), flow(0, 0, 10, window=4, received=WRAPS - 2), session=begin(window=0))
    assert texts([one.until("transfer") for _ in range(2)]) == ["a", "b"]
    one.say(flow(window=2, received=1, echo=True))
    assert texts([one.until("transfer")]) == ["c"]


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("what", ["transfer", "flow", "detach"])
def test_what_comes_on_a_detached_link_ends_its_session(say: Say, peer: Peer, what: str, closed: bool) -> None:
    one = sending(say)
    one.say(transfer(0, "a"))
    accepted(one, 1)
    again = {"transfer": transfer(1, "b"), "flow": flow(0, 0, 5), "detach": frame(raw.DETACH, Uint(0), closed)}
    one.say(frame(raw.DETACH, Uint(0), closed), again[what])
    assert one.until("end").error == "amqp:session:unattached-handle"
    assert bodies(peer) == ["a"]


def test_two_deliveries_of_one_tag_are_two_messages(say: Say, peer: Peer) -> None:
    """A repeated tag on a link that does not resume is an error of the sender that loses no message."""
    one = sending(say)
    one.say(transfer(0, "a", tag=b"t"), transfer(1, "b", tag=b"t"), transfer(2, "c", tag=b""))
    assert sorted(accepted(one, 3)) == [0, 1, 2]
    assert bodies(peer) == ["a", "b", "c"]


@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("settled", [False, True])
def test_dispositions_that_nobody_asked_for_change_nothing(say: Say, peer: Peer, second: bool, settled: bool) -> None:
    """Dispositions of unknown or settled deliveries, of the other direction, or without final state change nothing."""
    fill(peer, *"abc")
    one = say(attach("r", 0, receives=True, second=second), attach("s", 1), flow(0, 0, 2))
    assert texts([one.until("transfer") for _ in range(2)]) == ["a", "b"]
    one.say(
        disposition(2, 9, ACCEPTED, settled=settled),
        disposition(WRAPS - 5, WRAPS - 1, ACCEPTED, settled=settled),
        disposition(0, 1, ACCEPTED, receiver=False, settled=settled),
        disposition(0, 1, None, settled=False),
        disposition(0, 1, RECEIVED, settled=False),
        disposition(1, None, ACCEPTED),
        frame(raw.DETACH, Uint(1), True),
    )
    one.until("detach")
    one.say(disposition(1, None, RELEASED), disposition(1, 1, RELEASED, settled=settled), frame(raw.CLOSE))
    assert one.rest()[-1].name == "close"
    assert sorted(bodies(peer)) == ["a", "c"]


def test_a_range_that_wraps_is_of_what_is_unsettled_in_it(say: Say, peer: Peer) -> None:
    fill(peer, *"abcd")
    one = say(attach("r", 0, receives=True), flow(0, 0, 4))
    for _ in range(4):
        one.until("transfer")
    one.say(disposition(WRAPS - 3, 1, ACCEPTED), frame(raw.CLOSE))
    one.rest()
    assert bodies(peer) == ["c", "d"]


def test_an_outcome_that_is_changed_before_it_is_settled(say: Say, peer: Peer) -> None:
    """The first one counts: the message was dequeued."""
    fill(peer, "a")
    one = say(attach("r", 0, receives=True, second=True), flow(0, 0, 1))
    one.until("transfer")
    one.say(disposition(0, 0, ACCEPTED, settled=False))
    one.until("disposition")
    one.say(disposition(0, 0, RELEASED, settled=False), disposition(0, 0, RELEASED))
    one.say(frame(raw.CLOSE))
    one.rest()
    assert bodies(peer) == []


@pytest.mark.parametrize(
    "said",
    [
        [frame(raw.CLOSE)],
        [frame(raw.OPEN, "me"), frame(raw.CLOSE)],
        [frame(raw.OPEN, "me"), begin(), frame(raw.CLOSE)],
        [frame(raw.OPEN, "me"), begin(), attach("s", 0), frame(raw.CLOSE)],
        [frame(raw.OPEN, "me"), begin(), attach("s", 0), transfer(0, "a"), frame(raw.END), frame(raw.CLOSE)],
        [begin(), attach("s", 0), frame(raw.OPEN, "me"), frame(raw.CLOSE)],
        [frame(raw.OPEN, "me"), frame(raw.CLOSE), frame(raw.CLOSE)],
        [frame(raw.OPEN, "me"), frame(raw.CLOSE), begin(), attach("s", 0)],
        [frame(raw.OPEN, "me"), frame(raw.END)],
        [frame(raw.OPEN, "me"), begin(), frame(raw.END), frame(raw.END)],
        [frame(raw.OPEN, "me"), frame(raw.OPEN, "me"), frame(raw.CLOSE)],
    ],
)
def test_a_connection_ends_however_it_begins(broker: RunningBroker, peer: Peer, said: list[bytes]) -> None:
    """The frames come all at once; whatever is wrong, the broker sends a close, and serves other clients."""
    one = Raw(broker.port, *said)
    frames = one.rest()
    assert frames[-1].name == "close"
    one.sock.close()
    fill(peer, "z")
    assert bodies(peer)[-1:] == ["z"]


@pytest.mark.parametrize("how", ["another id", "another tag", "another link", "again from its start"])
def test_a_message_of_several_frames_that_is_mixed_up(say: Say, peer: Peer, how: str) -> None:
    one = say(attach("s", 0), attach("t", 1))
    one.until("attach")
    one.until("attach")
    content = message("a", durable=True)
    part = frame(raw.TRANSFER, Uint(0), Uint(0), b"0", Uint(0), False, True, payload=content[:5])
    rest = {
        "another id": frame(raw.TRANSFER, Uint(0), Uint(1), b"0", Uint(0), False, False, payload=content[5:]),
        "another tag": frame(raw.TRANSFER, Uint(0), Uint(0), b"1", Uint(0), False, False, payload=content[5:]),
        "another link": frame(raw.TRANSFER, Uint(1), Uint(0), b"0", Uint(0), False, False, payload=content[5:]),
        "again from its start": frame(raw.TRANSFER, Uint(0), Uint(0), b"0", Uint(0), False, False, payload=content),
    }[how]
    one.say(part, rest, frame(raw.CLOSE))
    frames = one.rest()
    assert frames[-1].name == "close"
    fill(peer, "z")
    found = bodies(peer)
    assert found[-1] == "z"
    assert found[:-1] in ([], ["a"])


def test_a_flow_on_a_link_that_sends_changes_nothing(say: Say, peer: Peer) -> None:
    one = sending(say)
    one.say(flow(0, 0, 100), flow(0, 77, 0, drain=True), transfer(0, "c"))
    accepted(one, 1)
    assert bodies(peer) == ["c"]
