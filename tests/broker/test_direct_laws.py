"""Properties of addresses with passthrough routing, in one thread, for any actions of senders and receivers.

* An anycast message goes to at most one receiver, a multicast message to each attached receiver, in sending order.
* A sender gets one outcome per message, which has the highest weight of all receivers' outcomes (C12, C21, C58).
* A receiver of a message in parts reads exactly its bytes, or gets an abort (C27, C28, C30).
* No credit is lost or created (C16), and no memory leaks.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cairnmq.amqp.links.stream_cursor import StreamCursor
from cairnmq.amqp.native.proton_ffi import ACCEPTED, MODIFIED, REJECTED, RELEASED
from cairnmq.amqp.ports import ABORTED, MORE, SETTLED, ContentRemoved, Outcome
from cairnmq.broker.broker import Broker
from tests.harness.broker.world import FakeTerminal, World
from tests.harness.thorough import amount

CREDIT = 1000
WEIGHTS = [RELEASED, MODIFIED, ACCEPTED, REJECTED]
CHOICE = st.integers(0, 1 << 16)
PLACES = st.sampled_from(["any", "all"])


class Copy:
    """The copy of one message at one receiver."""

    def __init__(self, tag: Any, content: bytes | StreamCursor) -> None:
        self.tag = tag
        self.content = content
        self.read = b"" if isinstance(content, StreamCursor) else content
        self.aborted = False
        self.settled = False

    def follow(self) -> None:
        """Read the content that is available."""
        if isinstance(self.content, StreamCursor) and not self.aborted:
            try:
                while data := self.content.take(7):
                    self.read += data
            except ContentRemoved:
                self.aborted = True

    @property
    def complete(self) -> bool:
        return not isinstance(self.content, StreamCursor) or (not self.aborted and self.content.at_end)


class Sent:
    """The model of a sent message."""

    def __init__(self, address: str, expected: list[Receiver], settled: bool) -> None:
        self.address = address
        self.expected = expected
        """The possible receivers: all of them receive a multicast message, one an anycast message."""
        self.settled = settled
        self.content = b""
        self.complete = False
        self.aborted = False
        self.said: dict[Receiver, int] = {}


class Sender:
    def __init__(self, terminal: FakeTerminal, address: str) -> None:
        self.terminal = terminal
        self.address = address
        self.sent: dict[int, Sent] = {}
        self.growing: int | None = None
        self.closed = False

    def credit(self) -> int:
        return self.terminal.credit - len(self.sent)

    def told(self, number: int) -> int | None:
        if number in self.terminal.confirmed:
            return ACCEPTED
        answer = self.terminal.told.get(number)
        return answer.state if answer is not None and answer.settled else None


class Receiver:
    def __init__(self, terminal: FakeTerminal, address: str, presettled: bool) -> None:
        self.terminal = terminal
        self.address = address
        self.presettled = presettled
        self.limit = 0
        self.copies: list[Copy] = []
        self.removed = False

    def look(self) -> None:
        for tag, content in self.terminal.forwarded[len(self.copies) :]:
            assert isinstance(content, bytes | StreamCursor)
            self.copies.append(Copy(tag, content))
        for copy in self.copies:
            copy.follow()


class Direct(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(1 << 20, anycast=("any",), multicast=("all",))
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        self.everybody: list[Receiver] = []
        self.numbers = iter(range(1, 1 << 30))
        self.sent: dict[int, Sent] = {}

    @property
    def broker(self) -> Broker:
        return self.world.broker

    def there(self, address: str) -> list[Receiver]:
        return [one for one in self.receivers if one.address == address]

    # ---- links ------------------------------------------------------------------------------------------------------

    @initialize(presettled=st.lists(st.booleans(), min_size=4, max_size=4))
    def begin(self, presettled: list[bool]) -> None:
        """Attach two receivers and a sender per address, which most transitions need."""
        for address, its in (("any", presettled[:2]), ("all", presettled[2:])):
            for one in its:
                self.attach_receiver(address, one, 10)
            self.attach_sender(address)

    @rule(address=PLACES)
    def attach_sender(self, address: str) -> None:
        if len(self.senders) < 4:
            self.senders.append(Sender(self.world.open(to_client=False, address=address), address))

    @rule(address=PLACES, presettled=st.booleans(), credit=st.integers(0, 20))
    def attach_receiver(self, address: str, presettled: bool, credit: int) -> None:
        if len(self.receivers) < 6:
            one = Receiver(self.world.open(to_client=True, presettled=presettled, address=address), address, presettled)
            self.receivers.append(one)
            self.everybody.append(one)
            self.more_credit(one, credit)

    def more_credit(self, one: Receiver, credit: int) -> None:
        one.limit += credit
        self.world.do(one.terminal.driver.request, one.limit, False)

    @precondition(lambda self: self.receivers)
    @rule(which=CHOICE, credit=st.integers(1, 20))
    def credit(self, which: int, credit: int) -> None:
        self.more_credit(self.receivers[which % len(self.receivers)], credit)

    @precondition(lambda self: self.receivers)
    @rule(which=CHOICE, lost=st.booleans())
    def leave(self, which: int, lost: bool) -> None:
        one = self.receivers.pop(which % len(self.receivers))
        one.look()
        one.removed = True
        returned = [copy for copy in one.copies if not copy.settled and not one.presettled]
        half = [copy for copy in one.copies if one.presettled and not copy.complete and not copy.aborted]
        for copy in [*returned, *half]:
            copy.settled = True
            self.said(one, copy, MODIFIED if lost else RELEASED)
        self.world.do(one.terminal.driver.close, [copy.tag for copy in (*returned, *half)], lost, True)

    def said(self, one: Receiver, copy: Copy, state: int) -> None:
        self.sent[copy.tag.delivery].said[one] = state

    # ---- messages ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.senders)
    @rule(which=CHOICE, count=st.integers(1, 6), settled=st.booleans())
    def send(self, which: int, count: int, settled: bool) -> None:
        sender = self.senders[which % len(self.senders)]
        if sender.growing is not None or sender.credit() < count:
            return
        fragments = []
        for _ in range(count):
            number = next(self.numbers)
            one = self.sent[number] = sender.sent[number] = Sent(sender.address, self.there(sender.address), settled)
            one.content, one.complete = b"message %d" % number, True
            fragments.append((number, one.content, SETTLED if settled else 0))
        self.world.send(sender.terminal, *fragments)

    @precondition(lambda self: self.senders)
    @rule(which=CHOICE, data=st.binary(min_size=1, max_size=30), last=st.booleans(), settled=st.booleans())
    def stream(self, which: int, data: bytes, last: bool, settled: bool) -> None:
        sender = self.senders[which % len(self.senders)]
        if sender.growing is None:
            if last or not sender.credit():
                return
            sender.growing = next(self.numbers)
            one = Sent(sender.address, self.there(sender.address), settled)
            self.sent[sender.growing] = sender.sent[sender.growing] = one
        number = sender.growing
        one = sender.sent[number]
        one.content += data
        one.complete = last
        if last:
            sender.growing = None
        self.world.send(sender.terminal, (number, data, (SETTLED if one.settled else 0) if last else MORE))

    @precondition(lambda self: self.senders)
    @rule(which=CHOICE)
    def abort(self, which: int) -> None:
        sender = self.senders[which % len(self.senders)]
        if sender.growing is not None:
            number, sender.growing = sender.growing, None
            sender.sent[number].aborted = True
            self.world.send(sender.terminal, (number, b"", ABORTED | SETTLED))

    @precondition(lambda self: self.senders)
    @rule(which=CHOICE)
    def close_sender(self, which: int) -> None:
        sender = self.senders.pop(which % len(self.senders))
        if sender.growing is not None:
            sender.sent[sender.growing].aborted = True
        sender.closed = True
        self.world.do(sender.terminal.driver.close, [], False, True)

    @precondition(lambda self: self.receivers)
    @rule(which=CHOICE, copy=CHOICE, state=st.sampled_from(WEIGHTS))
    def settle(self, which: int, copy: int, state: int) -> None:
        one = self.receivers[which % len(self.receivers)]
        one.look()
        open_copies = [found for found in one.copies if found.complete and not found.settled and not one.presettled]
        if open_copies:
            found = open_copies[copy % len(open_copies)]
            found.settled = True
            self.said(one, found, state)
            self.world.do(one.terminal.driver.outcomes, [Outcome(None, found.tag, state)])

    # ---- properties -------------------------------------------------------------------------------------------------

    @invariant()
    def each_gets_what_it_is_to_get(self) -> None:
        for one in self.everybody:
            one.look()
            numbers = [copy.tag.delivery for copy in one.copies]
            assert len(numbers) == len(set(numbers)), "nothing twice"
            for copy in one.copies:
                sent = self.sent[copy.tag.delivery]
                assert one in sent.expected or sent.address == "any"
                assert sent.content.startswith(copy.read)
                assert not copy.aborted or sent.aborted
                assert not sent.aborted or one.removed or copy.aborted, "who has a part of it is to take it back"
                if copy.complete:
                    assert sent.complete
                    assert copy.read == sent.content
            if one.address == "all":  # in sending order, without gaps
                sent_here = [number for number, sent in self.sent.items() if one in sent.expected]
                due = [number for number in sent_here if number in numbers or not self.sent[number].aborted]
                assert due[: len(numbers)] == numbers
        carried = [copy.tag.delivery for one in self.everybody if one.address == "any" for copy in one.copies]
        assert len(carried) == len(set(carried)), "anycast: to one receiver"

    @invariant()
    def senders_hear_what_receivers_said(self) -> None:
        for sender in self.senders:
            for number, sent in sender.sent.items():
                told = sender.told(number)
                assert told is None or not (sent.aborted or sent.settled)
                if sent.address == "any":
                    if sent.said and sent.complete and not sent.settled:
                        assert [told] == [*sent.said.values()]
                    continue
                said = dict.fromkeys([one for one in sent.expected if one.presettled], ACCEPTED) | sent.said
                if told is not None and sent.said and len(said) == len(sent.expected):
                    assert told == max(said.values(), key=WEIGHTS.index)

    def teardown(self) -> None:
        """Settle all messages, and check that the credit of all senders is restored and no memory is in use."""
        for sender in self.senders:
            if sender.growing is not None:
                self.world.send(sender.terminal, (sender.growing, b"", ABORTED | SETTLED))
                sender.sent[sender.growing].aborted = True
        for address in ("any", "all"):
            if not self.there(address):
                one = Receiver(self.world.open(to_client=True, address=address), address, False)
                self.receivers.append(one)
                self.everybody.append(one)
        for one in self.receivers:
            self.more_credit(one, 100_000)
        for one in self.receivers:
            one.look()
            outcomes = [Outcome(None, copy.tag, ACCEPTED) for copy in one.copies if not copy.settled and copy.complete]
            if outcomes and not one.presettled:
                self.world.do(one.terminal.driver.outcomes, outcomes)
        for sender in self.senders:
            assert sender.terminal.credit == CREDIT + len(sender.sent), "one for one"
            for number, sent in sender.sent.items():
                assert sent.settled or sent.aborted or sender.told(number) is not None
            self.world.do(sender.terminal.driver.close, [], False, True)
        for one in self.receivers:
            self.world.do(one.terminal.driver.close, [], False, True)
        assert self.broker.core.memory.used_bytes == 0
        assert not self.broker.addresses._places


Direct.TestCase.settings = settings(max_examples=amount("CAIRN_DIRECT_RUNS", 100, 30), stateful_step_count=50)
TestDirect = Direct.TestCase
