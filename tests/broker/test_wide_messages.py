"""Tests of messages for so many queues that dispatch takes several steps, during which their links are held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cairnmq.amqp.links.resume_state import Claims
from cairnmq.amqp.ports import MORE, SETTLED, Open, Terminus
from cairnmq.broker.kernel.dispatch_turns import AT_ONCE
from tests.harness.broker.declarations import declare, discharge
from tests.harness.broker.policies import Policed
from tests.harness.broker.world import FakeTerminal, WorkingClock, message, number_of

COUNT = 2 * AT_ONCE
ADDRESS = "amq.topic/news"


class Site(Policed):
    """Queues, each with a consumer, that get all messages for `ADDRESS`."""

    def __init__(self, count: int = COUNT) -> None:
        super().__init__(1 << 24, clock=WorkingClock(0.0002))  # each clock reading takes a tenth of a slice
        nodes = self.world.broker.nodes
        for number in range(count):
            self.make(f"q{number}")
            queue = self.world.queue(f"q{number}")
            self.world.do(nodes.bind, nodes.exchanges["amq.topic"], queue, "news", {}, lambda error: None)
        self.consumers = [self.open(f"q{number}", 1000) for number in range(count)]

    def numbers(self) -> list[int]:
        """Return the numbers of the messages that each consumer received, and check that all received the same."""
        found = [[number_of(content) for _, content in one.forwarded] for one in self.consumers]
        assert all(one == found[0] for one in found)
        return found[0]

    def attach(self, connection: object) -> FakeTerminal:
        """Attach the resumable link of one client to the exchange."""
        terminal = FakeTerminal()
        there = Terminus(address=ADDRESS, durability=2)
        opening = Open(False, there, False, connection, "link", "box", claims=Claims({}, True))
        self.world.do(self.world.broker.drivers.open, opening, terminal)
        return terminal

    def send_resumable(self, terminal: FakeTerminal, numbers: Sequence[int], *, flags: int = 0) -> None:
        """Send durable messages on a resumable link, in one batch."""
        arrivals = [((number, message(number, 10, True), flags), b"%d" % number, False) for number in numbers]
        self.world.do(terminal.driver.receive_resuming, arrivals)


@pytest.fixture
def site() -> Site:
    return Site()


def tags(terminal: FakeTerminal) -> set[int]:
    return {int(tag) for tag in terminal.driver.end.tags}


def test_a_resumable_link_takes_its_share_of_each_step(site: Site) -> None:
    terminal = site.attach(object())
    site.send_resumable(terminal, range(50))
    assert len(tags(terminal)) < 10
    assert terminal.held
    steps = most = 0
    while site.world.readings:
        before = len(tags(terminal))
        site.world.read_one()
        most, steps = max(most, len(tags(terminal)) - before), steps + 1
        assert steps < 5000
    assert most < 10
    assert not terminal.held
    assert site.numbers() == list(range(50))
    assert tags(terminal) == {*range(50)}


def test_wide_messages_of_one_user_are_dispatched_one_after_the_other(site: Site) -> None:
    links = [site.world.open(to_client=False, address=ADDRESS) for _ in range(2)]
    messages = [((number, message(number, 10, True), 0),) for number in range(2)]
    site.world.step_at_once(*[(link.driver.receive, sent) for link, sent in zip(links, messages, strict=True)])
    assert site.world.broker.nodes.exchanges["amq.topic"].routed == 1
    site.world.read_all()
    assert sorted(site.numbers()) == [0, 1]


def test_a_busy_queue_does_not_hold_others_for_ever(site: Site) -> None:
    """Dispatch to all queues ends, although other clients change the last queue in each step."""
    publisher = site.world.open(to_client=False, address=ADDRESS)
    other = site.world.open(to_client=False, address=f"q{COUNT - 1}")
    sent = [(number, message(number, 10, False), 0) for number in range(20)]
    site.world.do(publisher.driver.receive, sent)
    steps = 0
    while len(publisher.confirmed) < len(sent):
        work, arguments = site.world.readings.popleft()
        work(*arguments)
        site.world.step_at_once((other.driver.receive, [(steps, message(1000 + steps, 10, False), 0)]))
        steps += 1
        assert steps < 1000, "the link is held"
    site.world.read_all()
    assert not publisher.held
    assert [number_of(content) for _, content in site.consumers[0].forwarded] == list(range(20))


def test_dispatch_does_not_wait_for_all_other_background_work(site: Site) -> None:
    """Dispatch does not wait for fifty jobs without a user, such as expiry on queues, that each fill a step."""
    background = site.world.broker.core.background

    def work() -> None:
        while background.has_time():
            pass
        background.put_off(work)

    publisher = site.world.open(to_client=False, address=ADDRESS)
    for _ in range(50):
        background.put_off(work)
    site.world.do(publisher.driver.receive, [(1, message(1, 10, False), 0)])
    steps = 0
    while not all(consumer.forwarded for consumer in site.consumers):
        site.world.read_one()
        steps += 1
        assert steps < 10, "the dispatch waits for all jobs"


def test_each_step_dispatches_its_number_of_queues() -> None:
    """A step dispatches `AT_ONCE` new queues, also beside a short job that leaves time for a second turn."""
    site = Site(6 * AT_ONCE)
    background = site.world.broker.core.background

    def work() -> None:
        background.put_off(work)

    publisher = site.world.open(to_client=False, address=ADDRESS)
    background.put_off(work)
    site.world.do(publisher.driver.receive, [(1, message(1, 10, False), 0)])
    site.world.read_one()
    dispatched = 0
    while dispatched < len(site.consumers):
        before, dispatched = dispatched, sum(bool(consumer.forwarded) for consumer in site.consumers)
        assert dispatched >= min(before + AT_ONCE, len(site.consumers)), "a step dispatched fewer"
        site.world.read_one()


@pytest.mark.parametrize("for_good", [True, False], ids=["detached for good", "connection lost"])
@pytest.mark.parametrize("flags", [0, SETTLED], ids=["", "settled"])
def test_arrivals_that_wait_when_the_link_is_closed(site: Site, for_good: bool, flags: int) -> None:
    """Held messages arrive, except unsettled ones of a link that may be resumed, which its client sends again."""
    terminal = site.attach(object())
    site.send_resumable(terminal, range(30), flags=flags)
    assert terminal.held
    stored = tags(terminal)
    site.world.do(terminal.driver.close, (), not for_good, for_good)
    site.world.read_all()
    assert len(stored) < 30
    assert site.numbers() == (list(range(30)) if for_good or flags else sorted(stored))


@pytest.mark.parametrize("flags", [0, SETTLED], ids=["", "settled"])
def test_pieces_that_wait_when_the_connection_is_lost(site: Site, flags: int) -> None:
    """Each message in pieces arrives completely or not at all when the connection is lost."""
    terminal = site.attach(object())
    arrivals: list[Any] = []
    for number in range(10):
        content, tag = message(number, 10, True), b"%d" % number
        arrivals.append(((number, content[:5], MORE), tag, False))
        if number < 9:
            arrivals.append(((number, content[5:], flags), tag, False))
    site.world.do(terminal.driver.receive_resuming, arrivals)
    stored = tags(terminal)
    site.world.do(terminal.driver.close, (), True, False)
    site.world.read_all()
    assert site.numbers() == (list(range(9)) if flags else sorted(stored))


@pytest.mark.parametrize("stolen", [True, False])
def test_a_transaction_has_all_its_messages_or_fails(site: Site, stolen: bool) -> None:
    connection = object()
    control = site.world.open(to_client=False, coordinator=True, connection=connection)
    site.world.send(control, (0, declare(), 0))
    txn_id = control.declared_ids[0]
    terminal = site.attach(connection)
    site.send_resumable(terminal, range(10))
    assert terminal.held
    arrivals = [((number, message(number, 10, True), 0), b"%d" % number, False) for number in (10, 11)]
    site.world.do(terminal.driver.receive_resuming_in, connection, txn_id, arrivals)
    if stolen:
        site.attach(object())
    site.world.send(control, (1, discharge(txn_id, fail=False), 0))
    site.world.read_all()
    assert (1 in control.confirmed, 1 in control.rejected) == (not stolen, stolen)
    assert ({10, 11} & {*site.numbers()}) == (set() if stolen else {10, 11})


class Transacting:
    """A transaction of a client that sends on a resumable link to the exchange."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.connection = object()
        self.control = site.world.open(to_client=False, coordinator=True, connection=self.connection)
        site.world.send(self.control, (0, declare(), 0))
        self.txn_id = self.control.declared_ids[0]
        self.terminal = site.attach(self.connection)

    def send_behind(self, *pieces: tuple[bytes, int]) -> None:
        """Send pieces of message 10 in the transaction, in a step whose time is used up."""
        arrivals = [((10, content, flags), b"10", False) for content, flags in pieces]

        def receive() -> None:
            while self.site.world.broker.core.background.has_time():
                pass
            self.terminal.driver.receive_resuming_in(self.connection, self.txn_id, arrivals)

        self.site.world.do(receive)

    def discharge(self) -> None:
        self.site.world.send(self.control, (1, discharge(self.txn_id, fail=False), 0))


def test_discharge_waits_for_the_rest_of_a_message(site: Site) -> None:
    """A discharge waits for a message that has arrived completely and is held in part."""
    client, content = Transacting(site), message(10, 10, True)
    arrivals = [((10, content[:5], MORE), b"10", False)]
    site.world.do(client.terminal.driver.receive_resuming_in, client.connection, client.txn_id, arrivals)
    client.send_behind((content[5:], 0))
    assert client.terminal.held
    client.discharge()
    site.world.read_all()
    assert client.control.failures == []
    assert client.control.confirmed == [1]
    assert site.numbers() == [10]


@pytest.mark.parametrize("ends", [True, False], ids=["its end arrives later", "without an end"])
def test_transaction_fails_if_a_message_is_incomplete_at_the_discharge(site: Site, ends: bool) -> None:
    """A transaction fails if one message is incomplete at the discharge while another message is held."""
    client = Transacting(site)
    other = site.world.open(to_client=False, address="q0", connection=client.connection)
    content = message(11, 10, True)

    def send(part: bytes, flags: int) -> None:
        site.world.do(other.driver.receive_in, client.connection, client.txn_id, [(11, part, flags)])

    send(content[:5], MORE)
    client.send_behind((message(10, 10, True), 0))
    assert client.terminal.held
    client.discharge()
    if ends:
        send(content[5:], 0)
    site.world.read_all()
    assert client.control.confirmed == []
    assert [*client.control.rejected] == [1] * ends
    assert client.control.failures == ["amqp:transaction:rollback"] * (not ends)
    assert site.numbers() == []
