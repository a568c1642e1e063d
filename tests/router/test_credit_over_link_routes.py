"""Properties of credit on a link route while credit is raised, lowered and drained, and messages are in transit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.router.raw import transfer
from tests.harness.router.two_ends import TwoEnds

STEPS = (
    "ask", "take back", "drain", "send", "send unasked", "give back", "client says", "client hears", "far says",
    "far hears", "work",
)  # fmt: skip


def _step(two: TwoEnds, what: str, number: int) -> None:
    deeds: dict[str, Any] = {
        "ask": lambda: two.receiver.ask(number),
        "take back": lambda: two.receiver.ask(-number),
        "drain": lambda: two.receiver.ask(number - 1, drain=True),
        "send": lambda: two.sender.send(number),
        "send unasked": lambda: two.far is two.sender and two.sender.send(number, unasked=True),
        "give back": two.sender.give_back,
        "client says": lambda: two.client.say(number),
        "client hears": lambda: (two.client.pull(), two.client.hear(number)),
        "far says": lambda: two.far.say(number),
        "far hears": lambda: (two.far.pull(), two.far.hear(number)),
        "work": two.work,
    }
    deeds[what]()


@pytest.mark.parametrize("to_client", [True, False])
@settings(max_examples=300)
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 6)), max_size=60))
def test_the_sender_has_what_the_receiver_asks_for(to_client: bool, steps: list[tuple[str, int]]) -> None:
    """Both sides agree on the credit once no frames are in transit, and the sender never exceeds the credit."""
    with TwoEnds(to_client=to_client) as two:
        for what, number in steps:
            _step(two, what, number)
        two.quieten(two.sender.give_back)
        sender, receiver = two.sender, two.receiver
        assert not two.client.ends + two.far.ends
        waiting = sender.messages - receiver.messages
        assert waiting >= 0
        assert not waiting or not receiver.credit, f"{waiting} messages wait, {receiver.credit} are asked for"
        assert sender.credit == receiver.credit
        assert not receiver.drain or not receiver.credit, "the drain was answered"
        receiver.ask(waiting + 5)
        all_in_all = receiver.messages + receiver.credit
        two.quieten(lambda: sender.send(1000))
        assert (sender.messages, receiver.messages) == (all_in_all, all_in_all)


def test_what_is_asked_for_is_never_less_than_nothing() -> None:
    """Credit below the number of messages in transit counts as zero: Proton's blocking client lowers it like this."""
    with TwoEnds(to_client=True) as two:
        two.receiver.ask(10)
        two.quieten()
        two.sender.send(10)
        two.far.say(3)
        two.work()
        two.client.pull()
        two.client.hear(3)
        two.receiver.ask(-5)
        two.quieten()
        assert (two.receiver.messages, two.receiver.credit, two.sender.credit) == (5, 0, 0)
        two.receiver.ask(7)
        two.quieten()
        assert (two.receiver.messages, two.receiver.credit, two.sender.credit) == (10, 2, 2)


def test_a_client_that_goes_beyond_its_credit_is_shut_out() -> None:
    with TwoEnds(to_client=False) as two:
        two.far.ask(3)
        two.quieten()
        two.far.ask(-2)  # the client may not have received that yet
        two.quieten()
        for number in (2, 2):
            assert not two.client.ends
            two.client.send(number, unasked=True)
            two.quieten()
        for end in (two.client, two.far):
            assert (end.ends[0].name, end.ends[0].error) == ("detach", "amqp:link:transfer-limit-exceeded")
        assert two.far.messages <= 3


def test_what_the_other_container_sends_unasked_waits_for_credit() -> None:
    """Messages beyond the credit wait: RabbitMQ sends some, as it counts those between queue and session twice."""
    with TwoEnds(to_client=True) as two:
        two.client.ask(3)
        two.quieten()
        two.far.send(7, unasked=True)
        two.quieten()
        assert (two.client.messages, two.far.credit) == (3, 0)
        two.client.ask(3)
        two.quieten()
        assert (two.client.messages, two.far.credit) == (6, 0)
        two.client.ask(3)
        two.quieten()
        assert (two.client.messages, two.far.credit) == (7, 2)
        assert not two.client.ends
        assert not two.far.ends


def test_that_the_broker_ends_the_other_link_is_told_to_the_client_for_good() -> None:
    """The client's link is closed, since many clients ignore other detaches, and a link ends before its session."""
    with TwoEnds(to_client=True) as two:
        two.client.ask(3)
        two.quieten()
        parts = [transfer(0, 0, b"x" * 60_000, more=True), *[transfer(0, None, b"x" * 60_000, more=True)] * 18]
        while parts and not two.far.ends:  # of a message that exceeds the size limit
            two.far.said.append(parts.pop(0))
            two.quieten()
        assert [one.name for one in two.far.ends] == ["detach", "end"]
        assert [one.name for one in two.client.ends] == ["detach"]
        for detach in (two.far.ends[0], two.client.ends[0]):
            assert detach.error == "amqp:link:message-size-exceeded"
            assert detach.fields[1], "it is closed"
