"""A neighbour: another broker that this one has a connection with, opened by either (router guide C48).

The one that opened the connection attaches all links: one each way for each priority, on which messages go, and one
each way for what brokers tell each other. When all are there, the neighbour is; when one goes, all of it is gone.
Core only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..amqp import decode, encode
from ..amqp.attaching import ABSENT, SETTLED, SOURCE, TARGET, Attach, End
from ..amqp.codec import Malformed
from ..amqp.priorities import PRIORITY
from ..amqp.values import Symbol
from ..channel.words import ABORTED, MORE, ConnectionEnd, Fragment, Outcome, OutwardEnd, TerminalEnd
from .crossing import CREDIT, CrossingSender
from .topology import Said, Wrong
from .way import PRIORITIES, Lane

if TYPE_CHECKING:
    from .broker import Broker
    from .network import Network

CONTROL = "$router.control"
ADDRESSES = {f"$router.{number}": number for number in PRIORITIES} | {CONTROL: -1}
"""By address: the priority of what goes there; -1 for what brokers tell each other."""
HIGHEST = 9
CONTROL_CREDIT = 1000
MOST_SAID_BYTES = 32 << 20
COST = "cairnmq:cost"
_SAYS = b"\x00\x53\x77"


class Neighbour:
    """One connection with another broker."""

    def __init__(self, network: Network, broker: Broker, name: str, connection: ConnectionEnd, cost: int) -> None:
        self.name = name
        self.connection = connection
        self.cost = cost
        self.lanes: dict[int, Lane] = {}
        self.senders: dict[int, CrossingSender] = {}
        self.is_up = self.is_over = False
        self._network = network
        self._broker = broker
        self._telling: Telling | None = None
        self._hearing: Hearing | None = None
        self._due = 0
        """Links that were asked for and not answered."""

    # ---- how it comes -----------------------------------------------------------------------------------------------

    def attach_all(self, connection: OutwardEnd) -> None:
        """This broker has opened the connection: ask for all links."""
        for address, number in ADDRESSES.items():
            for sends in (True, False):
                self._due += 1
                self._attach(connection, address, number, sends=sends)

    def _attach(self, connection: OutwardEnd, address: str, number: int, *, sends: bool) -> None:
        priority = HIGHEST if number < 0 else number
        said = {Symbol(PRIORITY): priority}
        end = End(TARGET if sends else SOURCE, address, properties=encode.value({Symbol(COST): self.cost}))
        own = End(SOURCE if sends else TARGET, address)
        asked = Attach(
            f"{self._network.me}-{address}-{'out' if sends else 'in'}",
            own if sends else end,
            end if sends else own,
            **({"snd_settle_mode": SETTLED} if number < 0 else {}),
            properties=encode.value(said),
        )

        def answered(found: Attach) -> None:
            if (found.target if sends else found.source).kind == ABSENT:
                return  # its detach comes next
            self._due -= 1
            if not sends:
                driver.terminal.ask(CREDIT if number >= 0 else CONTROL_CREDIT, drain=False)
            self._look()

        driver = self._driver(number, sends=sends)
        driver.terminal = connection.attach(asked, driver, answered, sends=sends, priority=priority)

    def attached(self, number: int, terminal: TerminalEnd, *, to_client: bool) -> None:
        """The other one has opened it: one of the links that it asks for."""
        there = (number in self.lanes if to_client else number in self.senders) if number >= 0 else (
            self._telling if to_client else self._hearing
        )  # fmt: skip
        if there:
            terminal.failure("amqp:not-allowed", "there is one of these already")
            return
        driver = self._driver(number, sends=to_client)
        driver.terminal = terminal
        terminal.opened(driver, None, 0 if to_client else CREDIT if number >= 0 else CONTROL_CREDIT)
        self._look()

    def _driver(self, number: int, *, sends: bool) -> Lane | CrossingSender | Telling | Hearing:
        if number < 0 and sends:
            self._telling = Telling(self.ended)
            return self._telling
        if number < 0:
            self._hearing = Hearing(self._heard, self.ended)
            return self._hearing
        if sends:
            lane = self.lanes[number] = Lane(self)
            return lane
        sender = self.senders[number] = CrossingSender(self._broker, self._network, self)
        return sender

    def _look(self) -> None:
        all_there = len(self.lanes) == len(self.senders) == len(PRIORITIES) and self._telling and self._hearing
        if all_there and not self._due and not self.is_up and not self.is_over:
            self.is_up = True
            self._network.up(self)

    # ---- while it is there ------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what its ways took along."""
        for lane in self.lanes.values():
            if lane.pending:
                lane.flush()

    def tell(self, said: Said) -> None:
        assert self._telling is not None
        self._telling.say(_SAYS + encode.value(dict(said)))

    def _heard(self, content: bytes) -> None:
        try:
            if not content.startswith(_SAYS):
                raise Wrong("it says something that is no value")
            said, _ = decode.value(content, len(_SAYS), plain=True)
            if not isinstance(said, dict):
                raise Wrong("it says something that is no map")
            if not self.is_over:
                self._network.heard(self, said)
        except (Malformed, Wrong) as error:
            self.ended(f"it says what makes no sense: {error}")

    def ended(self, why: str) -> None:
        """One of its links is gone, or it can't be gone on with: that is its end."""
        if not self.is_over:
            self.is_over = True
            self._network.down(self, why)
            self.connection.expel(f"the link between the brokers is over: {why}")


class Telling:
    """The driver of the link on which a broker tells what it knows."""

    terminal: TerminalEnd

    def __init__(self, ended: Callable[[str], None]) -> None:
        self._ended = ended
        self._waiting: deque[tuple[None, bytes]] = deque()
        self._limit = self._sent = 0

    def say(self, content: bytes) -> None:
        self._waiting.append((None, content))
        self._send()

    def _send(self) -> None:
        count = min(self._limit - self._sent, len(self._waiting))
        if count > 0:
            self._sent += count
            self.terminal.forward([self._waiting.popleft() for _ in range(count)])

    def request(self, limit: int, drain: bool) -> None:
        self._limit = limit
        self._send()

    def post(self, fragments: Sequence[Fragment]) -> None:
        """Nothing comes on it."""

    def post_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        """The same."""

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """All is sent settled."""

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        """The same."""

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._ended("it detached a link")


class Hearing:
    """The driver of the link on which a broker hears what another one knows."""

    terminal: TerminalEnd

    def __init__(self, heard: Callable[[bytes], None], ended: Callable[[str], None]) -> None:
        self._heard = heard
        self._ended = ended
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    def post(self, fragments: Sequence[Fragment]) -> None:
        for delivery, data, flags in fragments:
            self._pieces.append(data)
            self._size_bytes += len(data)
            if self._size_bytes > MOST_SAID_BYTES:
                self._ended(f"it says more than {MOST_SAID_BYTES} bytes at once")
                return
            if flags & MORE:
                continue
            content = b"".join(self._pieces)
            self._pieces, self._size_bytes = [], 0
            self.terminal.release((delivery,), 1)
            if not flags & ABORTED:
                self._heard(content)

    def post_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        self._ended("brokers have no transactions with each other")

    def request(self, limit: int, drain: bool) -> None:
        """It only hears."""

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """The same."""

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        """The same."""

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._ended("it detached a link")
