"""The core of the cluster: it hears what the group says, in order, and has the handlers do it (D43).

| phase | what it is |
|---|---|
| `outside` | in no group, or in one without a majority: nothing is completed, nothing owned, clients are sent away |
| `founding` | nobody in the group is known to have all messages: its members say how far their stores have come |
| `wiping` | another member has more: what is replicated here goes, and the mark says so before |
| `asking` | it asked for what there is; what is heard from that place on is kept for later |
| `updating` | wiring and queues are there, and what is heard is done; the messages of before come, back to front |
| `synced` | it has all of them |

A member serves clients if it is synced, the group has a majority, and a majority of the members follows: is synced, or
at least does what it hears. It all happens on the broker's core, at the end of its steps: this is the paper's deliver
thread. Session, routing and encoding are done before, where the client's batch is taken (D80). Core only.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from ..base.clock import Clock
from ..base.errors import CairnError
from ..broker.broker import Broker
from ..broker.queue import Queue
from ..store.transaction import TxState
from .addresses import Addresses
from .belonging import Belonging
from .clients import Clients
from .clocks import Clocks
from .cluster_nodes import ClusterNodes
from .completion import Completion
from .deliver import Deliver, Heard
from .echo import Echo
from .flow import Flow
from .founding import FOREIGN, Founding
from .group import Configuration, Died, Event, Group, GroupError, MemberId, Messages, Quorum, Refused
from .joining import Joining
from .local_messages import NOTHING, Local, LocalMessageMap
from .losers import Losers
from .mark import NAME, Mark, Standing
from .message_handler import MessageHandler
from .parts import Saying
from .phases import FOUNDING, OUTSIDE, SYNCED
from .progress import Progress
from .purging import Purging
from .queue_owner import QueueOwnerHandler
from .reports import Reports
from .streaming import Streaming
from .transacting import Transacting
from .updater import Updater
from .waiting import Waiting
from .wiring import Wiring

log = logging.getLogger(__name__)


class Core:
    """One member."""

    broker: Broker
    messages: MessageHandler
    transacting: Transacting
    mark: Mark

    def __init__(
        self, group: Group, name: str, size: Callable[[], int], clock: Clock, fail: Callable[[CairnError], None]
    ) -> None:
        """*size*: of the whole cluster, known once the group is joined; *fail*: this broker can't go on as a member."""
        self.group = group
        self.name = name
        self.clock = clock
        self.phase = OUTSIDE
        self._size = size
        self.size = 1
        """Of the whole cluster, those that are not here included."""
        self.epoch = 0
        """Of the cluster, as far as this member knows it."""
        self.alone = False
        """It is a cluster of one, and never more."""
        self.force = False
        """An operator says that those who are here are enough."""
        self.completion = Completion()
        self.locals = LocalMessageMap()
        self.owners = QueueOwnerHandler(self)
        self.joining = Joining(self)
        self.losers = Losers(self)
        self.founding = Founding(self)
        self.updater = Updater(self)
        self.wiring = Wiring(self)
        self.purging = Purging(self)
        self.reports = Reports(self)
        self.streaming = Streaming(self)
        self.flow = Flow(self)
        self.clocks = Clocks(name, clock)
        self.addresses = Addresses(self)
        self.clients = Clients(self)
        self.deliver = Deliver(self)
        self.echo = Echo(self)
        self.belonging = Belonging(self)
        self.progress = Progress(self)
        self.waiting = Waiting(self)
        self.stalls = 0
        """How often the wiring made what is behind it wait."""
        self._fail = fail
        self.inbox: deque[Event | Heard] = deque()
        """What came and waits."""
        self.saying = Saying(group.multicast)
        self._stalled = False
        self.on_step: Callable[[], None] | None = None
        """Called when nothing more is to be done for now."""
        self._joined = False
        self.has_failed = False

    # ---- the start and the end ------------------------------------------------------------------------------------

    def attach(self, broker: Broker) -> None:
        self.nodes.create_queue(NAME, {}, self._marked)

    def begin(self, broker: Broker) -> None:
        """Before its nodes are made."""
        self.broker = broker
        self.owners.start(broker.timers)

    @property
    def nodes(self) -> ClusterNodes:
        nodes = self.broker.nodes
        assert isinstance(nodes, ClusterNodes)
        return nodes

    def _marked(self, made: Queue | Exception) -> None:
        if isinstance(made, Exception):
            self.fail("the mark of the cluster can't be kept", str(made))
            return
        self.messages = MessageHandler(self.broker, self.owners, self.completion)
        self.transacting = Transacting(self.broker, self.owners, self.messages)
        self.mark = Mark(self.broker.store, self.clock)
        self.mark.read(made.queue_id)
        if any(one.state is TxState.PREPARED for one in self.broker.in_doubt.in_doubt()):
            self.fail(
                "its store has distributed transactions in doubt",
                "start it without a cluster, and end them: cairnmq ctl transactions list",
            )
            return
        if foreign := self.founding.foreign_name():
            self.fail(foreign, FOREIGN)
            return
        try:
            self.group.join(self.name)
        except GroupError as error:
            self._fail(error)
            return
        self.size = self._size()
        self.completion.majority = self.size // 2 + 1
        if self.force:
            self.completion.majority = 1
            self.group.force()
        self._joined = True
        self.waiting.begin()
        self.broker.later(_nothing)

    def leave(self) -> None:
        """An orderly stop: the mark says how much of what was heard is done."""
        if self._joined and self.phase == SYNCED and not self.has_failed:
            self.mark.move(self.deliver.position)
        if not self.has_failed:
            self._joined = False
            self.group.close()

    def fail(self, reason: str, remedy: str = "") -> None:
        """This broker can't be a member any more; the others are not affected (D17)."""
        if not self.has_failed:
            self.has_failed = True
            error = CairnError(f"cluster {self.name!r}", reason, remedy)
            log.error("%s", error)
            self.belonging.lost(reason)
            self._joined = False
            self.group.close()
            self._fail(error)

    # ---- the state ------------------------------------------------------------------------------------------------

    @property
    def me(self) -> MemberId | None:
        return self.owners.me

    @property
    def members(self) -> tuple[MemberId, ...]:
        """All in the group."""
        return self.belonging.members

    @property
    def view(self) -> int:
        """The number of the last configuration."""
        return self.belonging.view

    @property
    def owned_queues(self) -> int:
        return sum([replica.owner == self.me is not None for replica in [*self.owners.replicas.values()]])

    @property
    def following(self) -> int:
        """How many do what they hear."""
        return len(self.owners.synced | {*self.completion.floors})

    def synced(self, standing: Standing) -> None:
        """This member has all messages."""
        self.phase = SYNCED
        self.mark.write(standing)
        log.info("cluster %s: this member has all messages", self.name)

    def why_not_serving(self) -> str:
        if self.has_failed:
            return "this broker is not a member of its cluster any more; its log says why"
        if self.phase == OUTSIDE or not self.belonging.has_majority:
            return "this broker has no majority of its cluster"
        if self.phase == FOUNDING:
            return "those members of the cluster that are here may not have all messages"
        if self.phase != SYNCED:
            return "this broker does not have all messages of its cluster yet"
        if self.following < self.completion.majority:
            return "too few members of the cluster have what there is"
        return ""

    # ---- saying ---------------------------------------------------------------------------------------------------

    def say(self, event: bytes, local: Local | None = None) -> None:
        if self.me is None:
            if local is not None:
                self.clients.lose(local)
            return
        self.locals.add(local or NOTHING)
        if self.group.me != self.me:
            return  # the group knows already what is still to be heard here: this member is out, or in as a new one
        self.saying.say(event)

    def when_safe(self, position: int, action: Callable[[], None]) -> None:
        self.completion.when_safe(position, action)

    @property
    def is_sending(self) -> bool:
        """The group takes no more for now."""
        return self.saying.waits

    def _send(self) -> None:
        if self.group.me != self.me:
            return
        self.saying.go_on()
        self.flow.go_on()
        if not self.saying.waits and self.updater.is_busy and not self.flow.somebody_lags:
            self.updater.go_on()

    # ---- hearing --------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Send what is to be said, do what has come; whether there was anything."""
        if not self._joined:
            return False
        self._send()
        heard = self.group.step()
        for event in heard:
            if isinstance(event, Messages):
                last = event.position + len(event.payloads) - 1
                if not self.alone:
                    self.flow.came(last, event.payloads)
                for at, payload in enumerate(event.payloads, event.position):
                    self.inbox.append(Heard(event.sender, at, payload, event.seq, at == last))
            else:
                self.inbox.append(event)
        did = self.work()
        self.progress.note()
        did = self._answer() or did
        if not self.alone:
            self.progress.look_at_flow()
            self.echo.look()
        if not did and self.on_step is not None:
            self.on_step()
        return did

    def work(self) -> bool:
        did, hear = False, self.deliver.hear
        while self.inbox and not self._stalled:
            did = True
            event = self.inbox.popleft()
            if isinstance(event, Heard):
                hear(event)
            elif isinstance(event, Configuration):
                self.belonging.configured(event)
            elif isinstance(event, Quorum):
                self.belonging.quorum(quorate=event.quorate)
            elif isinstance(event, Refused):
                log.warning("cluster %s: node %d is not let in: %s", self.name, event.node, event.reason)
            elif isinstance(event, Died):
                self.fail(event.reason, event.remedy or "start this broker again when that is mended")
        return did

    def stall(self) -> None:
        """What is heard waits: the wiring is being written."""
        self._stalled = True
        self.stalls += 1

    def go_on(self) -> None:
        self._stalled = False

    def hear_again(self, kept: list[Event | Heard]) -> None:
        """What was kept comes before what is waiting."""
        self.inbox.extendleft(reversed(kept))

    # ---- what is done ---------------------------------------------------------------------------------------------

    def durable(self) -> None:
        """The store's durable LSN has moved."""
        if self._joined:
            self.progress.durable()

    def _answer(self) -> bool:
        """Do what waited for what is safe now."""
        if not self.belonging.has_majority:
            return False
        actions = self.completion.safe()
        for action in actions:
            action()
        return bool(actions)


def _nothing() -> None:
    """The end of that step looks what the group says."""
