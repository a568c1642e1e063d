"""Tests of the budget of control frames: messages to a client do not use it, and excess frames are processed later."""

from __future__ import annotations

import pytest

from cairnmq.amqp.codec.types import Uint
from tests.fuzz.site import Site
from tests.harness.router.raw import AMQP, FLOW, Say, attach, begin, frame, opening, transfer
from tests.harness.security.wire import message

CONTROLS = 16
WINDOW = Uint(0), Uint(1 << 20), Uint(0), Uint(1 << 20)
CREDIT = frame(FLOW, *WINDOW, Uint(0), Uint(0), Uint(1000))
EMPTY_FRAME = bytes.fromhex("0000000802000000")


def test_receiver_that_sends_nothing_keeps_its_budget() -> None:
    """Flows that Proton reports for each written batch do not use the budget, since the driver knows their content."""
    site = Site()
    receiver, sender = site.terminal(), site.terminal()
    receiver.receive(AMQP + opening() + begin() + attach("r", 0, "q", receives=True) + CREDIT)
    sender.receive(AMQP + opening() + begin() + attach("s", 0, "q"))
    for terminal in (receiver, sender):
        site.settle_down(terminal)
    assert not receiver.receive(EMPTY_FRAME, CONTROLS).is_behind
    for number in range(3 * CONTROLS):
        sender.receive(transfer(0, number, message()))
        for terminal in (sender, receiver):
            site.settle_down(terminal)
    assert site.world.queue().messages == 3 * CONTROLS
    (link,) = receiver.engine.endpoints.links.values()
    assert link.sent == 3 * CONTROLS
    assert receiver.engine.controls_left == CONTROLS
    turn = receiver.go_on(CONTROLS)
    assert (turn.is_behind, turn.controls_left) == (False, CONTROLS)
    assert not receiver.engine.is_behind


@pytest.mark.parametrize(("drain", "echo"), [(True, False), (False, True)])
def test_flows_are_answered_that_came_with_the_attaches(say: Say, drain: bool, echo: bool) -> None:
    """Flows that arrive with attaches wait until the core opens the links, and are answered beyond its budget."""
    links = CONTROLS // 2 - 1
    attaches = [attach(f"r{number}", number, "q", receives=True, channel=1) for number in range(links)]
    flows = [
        frame(FLOW, *WINDOW, Uint(number), Uint(0), Uint(0), None, drain, echo, channel=1)
        for number in (*range(links), 0)
    ]  # fmt: skip
    raw = say(begin(1), *attaches, *flows)
    answered: set[int] = set()
    while len(answered) < links:
        answered.update(raw.until("flow").fields[4:5])
        answered.discard(None)


@pytest.mark.parametrize(("drain", "echo"), [(True, False), (False, True)])
def test_repeated_requests_for_one_answer_count_one_by_one(drain: bool, echo: bool) -> None:
    site = Site()
    terminal = site.terminal()
    terminal.receive(AMQP + opening() + begin() + attach("r", 0, "q", receives=True))
    site.settle_down(terminal)
    flow = frame(FLOW, *WINDOW, Uint(0), Uint(0), Uint(0), None, drain, echo)
    turn = terminal.receive(flow * 1000, CONTROLS)
    assert turn.controls_left <= CONTROLS - 1000
    assert terminal.receive(flow, CONTROLS).controls_left >= CONTROLS - 2
