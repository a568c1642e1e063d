"""Tests of the limit of attached handles of a connection, which includes refused links."""

from __future__ import annotations

import pytest

from cairnmq.amqp.codec.types import Uint
from cairnmq.amqp.links.events import Limits
from tests.clients.conftest import StartBroker, start_broker
from tests.harness.router import raw
from tests.harness.router.raw import Say, attach, begin, frame
from tests.router.conftest import broker, say

__all__ = ["broker", "say", "start_broker"]

MOST_LINKS = 3
LIST_SIZE_AT = 12
"""Offset of the size of the field list in the frame of an attach."""


def test_attached_handles_beyond_the_limit_close_the_connection(start_broker: StartBroker, say: Say) -> None:
    """Refused links, which stay attached until the client detaches them, count; without a limit, work was quadratic."""
    one = say(begin(1), port=start_broker(limits=Limits(max_links=MOST_LINKS)).port)
    one.say(*[attach(f"l{number}", number, "q", channel=number % 2) for number in range(2 * MOST_LINKS + 1)])
    frames = one.rest()
    refused = [found for found in frames if found.name == "detach"]
    assert [found.error for found in refused] == ["amqp:resource-limit-exceeded"] * len(refused)
    assert frames[-1].name == "close"
    assert frames[-1].error == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize("how", ["detach", "end"])
def test_handles_that_are_released_do_not_count(start_broker: StartBroker, say: Say, how: str) -> None:
    one = say(port=start_broker(limits=Limits(max_links=MOST_LINKS)).port)
    for _ in range(3):
        for number in range(2 * MOST_LINKS):
            one.say(attach(f"l{number}", number, "q"))
        if how == "detach":
            one.say(*[frame(raw.DETACH, Uint(number), True) for number in range(2 * MOST_LINKS)])
        else:
            one.say(frame(raw.END), begin())
    one.say(frame(raw.CLOSE))
    assert one.rest()[-1].error == ""


def test_one_name_in_two_encodings_is_one_name(say: Say) -> None:
    changed = bytearray(attach("name", 1, "q").replace(b"\xa1\x04name", b"\xb1\x00\x00\x00\x04name"))
    changed[:4] = len(changed).to_bytes(4)
    changed[LIST_SIZE_AT] += 3
    one = say(attach("name", 0, "q"), bytes(changed))
    assert one.until("close").error == "amqp:invalid-field"
