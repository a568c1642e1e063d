"""Tests that flows with `echo` are answered with the state of the session or link (2.7.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cairnmq.amqp.codec.types import Described, Symbol, Ubyte, Uint
from cairnmq.amqp.links.events import Limits
from cairnmq.broker_plugin.options import BrokerOptions, RouterOptions, StoreOptions
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.router import raw
from tests.harness.router.raw import Frame, Raw, attach, begin, frame, opening, transfer

BODY = b"\x00\x53\x77\x43"
MAX_FRAME = 512
WINDOW_FRAMES = 8
NEXT_INCOMING, INCOMING_WINDOW, NEXT_OUTGOING, OUTGOING_WINDOW, HANDLE, COUNT, CREDIT, AVAILABLE, DRAIN = range(9)
OUR_HANDLE = 7
"""Handle of the tested link on the client side; the handle on the broker side is `ITS_HANDLE`."""
ITS_HANDLE = 1


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    limits = Limits(max_frame_bytes=MAX_FRAME, session_window_bytes=WINDOW_FRAMES * MAX_FRAME)
    options = BrokerOptions("", StoreOptions(), RouterOptions(port=0, limits=limits), ("*",), store_kind="memory")
    running = RunningBroker(options)
    yield running
    failure = running.failure
    running.stop()
    assert failure is None


def flow(
    *link: int, received: int = 0, window: int = 2048, sent: int = 0, drain: bool = False, echo: bool = True
) -> bytes:
    """Return a flow for *link* (handle, delivery-count and link-credit), or for the session without it."""
    ids = [Uint(number) for number in (received, window, sent, 2048)]
    of_link: list[Uint | None] = [Uint(number) for number in link] if link else [None] * 3
    return frame(raw.FLOW, *ids, *of_link, None, drain, echo)


def connected(broker: RunningBroker, queue: str, *, receives: bool, settled: bool = False, window: int = 2048) -> Raw:
    """Return a connection with a link for which the broker uses another handle, due to an earlier attach."""
    link = attach("link", OUR_HANDLE, queue, receives=receives)
    if settled:
        link = link.replace(b"\x50\x02\x50\x00", b"\x50\x01\x50\x00")
    said = opening(max_frame=MAX_FRAME), begin(window=window), attach("other", 3, queue, receives=True), link
    one = Raw(broker.port, *said)
    assert one.until("attach").fields[1] == 0
    assert one.until("attach").fields[1] == ITS_HANDLE
    if not receives:
        until_credit(one)
    return one


def until_credit(one: Raw) -> None:
    while len(one.until("flow").fields) <= CREDIT:
        pass


def fill(broker: RunningBroker, queue: str, *sizes: int) -> None:
    """Send messages of these sizes to the queue."""
    with Raw(broker.port, opening(max_frame=MAX_FRAME), begin(), attach("fill", 0, queue)) as one:
        until_credit(one)
        sent = 0
        for number, size in enumerate(sizes):
            parts = parts_of(number, size)
            for part in parts:
                if sent % (WINDOW_FRAMES // 2) == 0:
                    one.say(flow(sent=sent))
                    while one.until("flow").fields[NEXT_INCOMING] != sent:
                        pass
                one.say(part)
                sent += 1
            one.until("disposition")


def parts_of(number: int, size: int, handle: int = 0) -> list[bytes]:
    """Return the transfer frames of a message, with up to 400 bytes of payload each."""
    body = b"\x00\x53\x75\xb0" + size.to_bytes(4) + bytes(size)
    pieces = [body[at : at + 400] for at in range(0, len(body), 400)]
    last = len(pieces) - 1
    return [transfer(handle, number if not at else None, piece, more=at < last) for at, piece in enumerate(pieces)]


def until_flow(one: Raw) -> tuple[list[Any], list[Frame]]:
    """Return the fields of the next flow, and the transfers before it."""
    transfers = []
    while (found := one.hear()) is not None:
        if found.name == "transfer":
            transfers.append(found)
        elif found.name == "flow":
            return found.fields, transfers
    raise AssertionError("the connection ended")


def complete(transfers: list[Frame]) -> int:
    return sum(not [*found.fields, *[None] * 6][5] for found in transfers)


def test_echo_of_a_session_is_answered_with_its_state(broker: RunningBroker) -> None:  # D4
    with connected(broker, "session", receives=False) as one:
        one.say(*[transfer(OUR_HANDLE, number, BODY) for number in range(3)])
        one.say(flow(sent=3))
        fields, _ = until_flow(one)
        assert fields[NEXT_INCOMING] == 3
        assert 0 < fields[INCOMING_WINDOW] <= WINDOW_FRAMES
        assert fields[NEXT_OUTGOING] == 0
        assert fields[OUTGOING_WINDOW] > 0


def test_echo_of_a_link_on_which_the_client_sends(broker: RunningBroker) -> None:  # D4
    """The answer has the client's delivery-count, and credit up to the granted delivery limit."""
    with connected(broker, "sends", receives=False) as one:
        one.say(flow(OUR_HANDLE, 0, 0))
        granted = until_flow(one)[0][CREDIT]
        one.say(*[transfer(OUR_HANDLE, number, BODY) for number in range(5)])
        one.say(flow(OUR_HANDLE, 5, 0, sent=5))
        fields, _ = until_flow(one)
        while fields[NEXT_INCOMING] != 5:
            fields, _ = until_flow(one)
        assert fields[HANDLE] == ITS_HANDLE
        assert fields[COUNT] == 5
        assert granted - 5 <= fields[CREDIT] <= granted
        assert fields[DRAIN] is False


@pytest.mark.parametrize("credit", [2, 10])
@pytest.mark.parametrize("handle", [OUR_HANDLE, 3])
def test_echo_of_a_link_on_which_the_client_receives(broker: RunningBroker, credit: int, handle: int) -> None:  # D4
    queue = f"receives-{credit}-{handle}"
    fill(broker, queue, *[10] * 4)
    with connected(broker, queue, receives=True) as one:
        one.say(flow(handle, 0, credit))
        transfers: list[Frame] = []
        expected = min(credit, 4)
        while len(transfers) < expected:
            found = one.hear()
            assert found is not None
            if found.name == "transfer":
                transfers.append(found)
        one.say(flow(handle, 0, credit, received=expected))
        fields, late = until_flow(one)
        while fields[COUNT] != expected:
            fields, late = until_flow(one)
        assert not late
        assert fields[HANDLE] == (ITS_HANDLE if handle == OUR_HANDLE else 0)
        assert fields[CREDIT] == credit - expected
        assert fields[NEXT_OUTGOING] == expected
        assert fields[AVAILABLE] is None
        assert fields[DRAIN] is False


def test_echo_after_a_drain_counts_the_credit_that_was_given_back(broker: RunningBroker) -> None:
    fill(broker, "drained", 10)
    with connected(broker, "drained", receives=True) as one:
        one.say(flow(OUR_HANDLE, 0, 5, drain=True, echo=False))
        fields, transfers = until_flow(one)
        assert (fields[COUNT], fields[CREDIT], len(transfers)) == (5, 0, 1)
        one.say(flow(OUR_HANDLE, 5, 3, received=1))
        fields, _ = until_flow(one)
        assert (fields[HANDLE], fields[COUNT], fields[CREDIT], fields[DRAIN]) == (ITS_HANDLE, 5, 3, False)


def test_credit_that_is_taken_back_is_not_less_than_none(broker: RunningBroker) -> None:
    fill(broker, "back", *[10] * 3)
    with connected(broker, "back", receives=True) as one:
        one.say(flow(OUR_HANDLE, 0, 3, echo=False))
        for _ in range(3):
            one.until("transfer")
        one.say(flow(OUR_HANDLE, 0, 1, received=3))
        fields, _ = until_flow(one)
        assert (fields[COUNT], fields[CREDIT]) == (3, 0)


def test_echo_between_the_transfers_of_large_messages(broker: RunningBroker) -> None:  # D4
    """Each answer counts exactly the transfers and deliveries before it, and the window is never exceeded."""
    sizes = 40_000, 10, 20_000
    fill(broker, "large", *sizes)
    window = 5
    with connected(broker, "large", receives=True, window=window) as one:
        came: list[Frame] = []
        one.say(flow(OUR_HANDLE, 0, 10, received=0, window=window))
        answers = 0
        while complete(came) < len(sizes):
            fields, transfers = until_flow(one)
            answers += 1
            came += transfers
            assert fields[NEXT_OUTGOING] == len(came)
            assert fields[HANDLE] == ITS_HANDLE
            assert fields[COUNT] == complete(came)
            assert fields[CREDIT] == 10 - complete(came)
            one.say(flow(OUR_HANDLE, 0, 10, received=len(came), window=window))
        assert sum(len(found.payload) for found in came) >= sum(sizes)
        assert answers >= len(came) // window


def test_echo_between_the_transfers_that_the_client_sends(broker: RunningBroker) -> None:  # D4
    """The window of each answer can be used completely, as proton, which enforces it, has the same counts."""
    parts = parts_of(0, 30_000, handle=OUR_HANDLE)
    with connected(broker, "sends-large", receives=False) as one:
        sent = 0
        while sent < len(parts):
            one.say(flow(OUR_HANDLE, int(sent > 0), 0, sent=sent))
            fields, _ = until_flow(one)
            while fields[NEXT_INCOMING] != sent:
                fields, _ = until_flow(one)
            window = fields[INCOMING_WINDOW]
            assert 0 < window <= WINDOW_FRAMES
            one.say(*parts[sent : sent + window])
            sent += window
        one.until("disposition")


def test_echo_that_comes_with_the_attach_is_answered_behind_the_attach(broker: RunningBroker) -> None:
    said = begin(), attach("early", 0, "early", receives=True), flow(0, 0, 4), flow()
    with Raw(broker.port, opening(), *said) as one:
        one.until("attach")
        fields, _ = until_flow(one)
        while len(fields) <= CREDIT:
            fields, _ = until_flow(one)
        assert (fields[HANDLE], fields[COUNT], fields[CREDIT]) == (0, 0, 4)


def test_echo_on_a_link_that_resumes(broker: RunningBroker) -> None:
    """The answer is correct on a connection with a resumable link, whose outgoing frames are rewritten."""
    lasting = Described(Uint(raw.SOURCE), ["resumes", Uint(2), Symbol("never")])
    fields = "lasting", Uint(2), True, Ubyte(2), Ubyte(0), lasting, Described(Uint(raw.TARGET), ["me"])
    fill(broker, "resumes", 10)
    with Raw(broker.port, opening(), begin(), frame(raw.ATTACH, *fields), flow(2, 0, 3)) as one:
        one.until("transfer")
        one.say(flow(2, 0, 3, received=1))
        state, _ = until_flow(one)
        while state[COUNT] != 1:
            state, _ = until_flow(one)
        assert (state[HANDLE], state[CREDIT], state[NEXT_OUTGOING]) == (0, 2, 1)
        one.say(frame(raw.DETACH, Uint(2), True))
        one.until("detach")


@pytest.mark.parametrize("how", ["detach", "end"])
def test_echo_of_what_ends_at_once_is_harmless(broker: RunningBroker, how: str) -> None:
    ends = frame(raw.DETACH, Uint(OUR_HANDLE), True) if how == "detach" else frame(raw.END)
    with connected(broker, "ends", receives=True) as one:
        one.say(flow(OUR_HANDLE, 0, 1) + flow() + ends + frame(raw.CLOSE))
        found = one.rest()
        assert how in [each.name for each in found]
        assert found[-1].error == ""


def test_many_echoes_have_few_answers(broker: RunningBroker) -> None:
    """Echo requests for the same state that arrive together have one answer (2.7.4)."""
    rounds = 500
    with connected(broker, "many", receives=True) as one:
        one.say(b"".join(flow(OUR_HANDLE, 0, credit) + flow(3, 0, 1) + flow() for credit in range(1, rounds + 1)))
        answers = 0
        while (fields := until_flow(one)[0])[CREDIT:] != [rounds, None, False]:
            answers += 1
        assert fields[HANDLE] == ITS_HANDLE
        assert answers < rounds
        one.say(frame(raw.CLOSE))
        assert len(one.rest()) < 10
