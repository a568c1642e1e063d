"""Messages to a client cost its connection no part of the budget of control frames."""

from __future__ import annotations

from cairnmq.amqp.codec.types import Uint
from tests.fuzz.site import Site
from tests.harness.router.raw import AMQP, FLOW, attach, begin, frame, opening, transfer
from tests.harness.security.wire import message

CONTROLS = 16
WINDOW = Uint(0), Uint(1 << 20), Uint(0), Uint(1 << 20)
CREDIT = frame(FLOW, *WINDOW, Uint(0), Uint(0), Uint(1000))
EMPTY_FRAME = bytes.fromhex("0000000802000000")


def test_receiver_that_sends_nothing_keeps_its_budget() -> None:
    """Proton reports each batch that it has written as a flow; those say nothing that the driver does not know."""
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
