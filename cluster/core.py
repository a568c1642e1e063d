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
from dataclasses import replace

from ..base.clock import Clock
from ..base.errors import CairnError
from ..broker.broker import Broker
from ..broker.queue import Queue
from ..store.transaction import TxState
from . import events
from .addresses import Addresses
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
from .phases import ASKING, FOUNDING, OUTSIDE, SYNCED, UPDATING, WIPING
from .purging import Purging
from .queue_owner import QueueOwnerHandler
from .reports import Reports
from .streaming import Streaming
from .transacting import Transacting
from .updater import Updater
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
        self.primary = False
        self.quorate = False
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
        self.members: tuple[MemberId, ...] = ()
        self.view = 0
        self.stalls = 0
        """How often the wiring made what is behind it wait."""
        self.lost_times = 0
        self._fail = fail
        self.inbox: deque[Event | Heard] = deque()
        """What came and waits."""
        self._saying = Saying(group.multicast)
        self._stalled = False
        self._noted = 0
        self._recorded_lsn = 0
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
            self.lost(reason)
            self._joined = False
            self.group.close()
            self._fail(error)

    # ---- the state ------------------------------------------------------------------------------------------------

    @property
    def me(self) -> MemberId | None:
        return self.owners.me

    @property
    def owned_queues(self) -> int:
        return sum([replica.owner == self.me is not None for replica in [*self.owners.replicas.values()]])

    @property
    def following(self) -> int:
        """How many do what they hear."""
        return len(self.owners.synced | {*self.completion.floors})

    def why_not_serving(self) -> str:
        if self.has_failed:
            return "this broker is not a member of its cluster any more; its log says why"
        if self.phase == OUTSIDE or not self.primary or not self.quorate:
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
        self._saying.say(event)

    def when_safe(self, position: int, action: Callable[[], None]) -> None:
        self.completion.when_safe(position, action)

    @property
    def is_sending(self) -> bool:
        """The group takes no more for now."""
        return self._saying.waits

    def _send(self) -> None:
        if self.group.me != self.me:
            return
        self._saying.go_on()
        self.flow.go_on()
        if not self._saying.waits and self.updater.is_busy and not self.flow.somebody_lags:
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
        self._note_done()
        did = self._answer() or did
        if not self.alone:
            self._look_at_flow()
            self.echo.look()
        if not did and self.on_step is not None:
            self.on_step()
        return did

    def _look_at_flow(self) -> None:
        if self.phase in (OUTSIDE, FOUNDING, WIPING, ASKING) and not self.inbox and not self.joining.is_asked:
            self.flow.nothing_lags()
        else:
            completion = self.completion
            done, safe = completion.done, completion.finished
            if not self.inbox and done >= self.deliver.position:  # what comes behind it are acknowledgements
                safe = self.flow.end if safe == done else safe
                done = self.flow.end
            self.flow.look(done, safe, self.deliver.parts.size_bytes)

    def work(self) -> bool:
        did, hear = False, self.deliver.hear
        while self.inbox and not self._stalled:
            did = True
            event = self.inbox.popleft()
            if isinstance(event, Heard):
                hear(event)
            elif isinstance(event, Configuration):
                self._configured(event)
            elif isinstance(event, Quorum):
                self._quorum(event.quorate)
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

    # ---- members --------------------------------------------------------------------------------------------------

    def _quorum(self, quorate: bool) -> None:
        was, self.quorate = self.quorate, quorate
        if was and not quorate:
            self.clients.expel()

    def _configured(self, config: Configuration) -> None:
        me = self.group.me
        self.view = config.view
        for member in config.left:
            self.deliver.parts.left(member)
        self.flow.left(config.left)
        mine = next((member for member in config.joined if member == me), None)
        self.addresses.configured(config)
        if config.joined:
            self._saying.somebody_came()
            self.flow.say_again()
            self.addresses.say()
        if mine is None and (self.me not in config.members or not config.primary):
            self.lost("the majority of the cluster is not there")
            return
        self.addresses.left(config.left)
        if self.phase == ASKING and self.joining.is_asked and mine is None and not config.left:
            self.joining.keep(config)
            self.members = config.members
            self.completion.members(config.members)
            return
        self.members = config.members
        if mine is not None:
            self._entered(mine, config)
            self.addresses.say()
            return
        self.completion.members(config.members)
        self.owners.members_are(config.members)
        self._note_view()
        self.updater.members_are(config.members)
        self.joining.members_are(config.members)
        self.purging.members_are(config.left)
        is_asking = self.phase == ASKING and self.joining.is_asked
        if self.phase == FOUNDING or is_asking or not self.owners.synced:
            self.begin_founding()

    def _entered(self, me: MemberId, config: Configuration) -> None:
        """This is a new member, whatever it was before."""
        if self.me is not None:
            self.lost("it came back to the cluster as a new member")
        self.primary = config.primary
        self.owners.me = me
        self.owners.members = config.members
        self.completion.begin(me, config.position, config.members)
        self.deliver.position = self._noted = config.position
        self.flow.begin()
        self.begin_founding()

    def begin_founding(self) -> None:
        """Nobody is known to have all messages, or the one who was to bring them may be gone."""
        self.phase = FOUNDING
        self.joining.lost()
        self.founding.begin()

    def synced(self, standing: Standing) -> None:
        """This member has all messages."""
        self.phase = SYNCED
        self.mark.write(standing)
        log.info("cluster %s: this member has all messages", self.name)

    def _note_view(self) -> None:
        if self.phase in (UPDATING, SYNCED):
            self.mark.write(replace(self.mark.standing, view=self.view, position=self.deliver.position))

    def lost(self, why: str) -> None:
        """Out of the group, or in a minority: nothing is completed nor owned from here on (rule 4)."""
        if self.me is None:
            return
        log.warning("cluster %s: clients are sent away: %s", self.name, why)
        self.lost_times += 1
        self.phase = OUTSIDE
        self.primary = False
        self._saying.lost()
        self.deliver.parts.lost()
        self.joining.lost()
        self.purging.lost()
        self.updater.lost()
        self.owners.lost()
        for replica in self.owners.replicas.values():
            if replica.queue.gate is not None:
                replica.queue.gate.nothing_leaves()
        for action in self.completion.lost():
            action()
        for local in [*self.locals.lost(), *self.flow.lost()]:
            self.clients.lose(local)
        self.broker.transactions.lost()
        self.reports.lost()
        self.streaming.lost(why)
        self.clients.expel()

    # ---- what is done ---------------------------------------------------------------------------------------------

    def _note_done(self) -> None:
        """The end of a step: what it did is to be durable, and then the others are told."""
        position = self.deliver.position
        if self.phase not in (UPDATING, SYNCED) or (position == self._noted and not self.completion.ended_one):
            return
        self._noted = position
        store = self.broker.store
        if store.next_lsn != self._recorded_lsn:
            self.mark.move(position)
        self._recorded_lsn = store.next_lsn
        self.completion.applied(store.next_lsn, position)
        self.durable()

    def durable(self) -> None:
        """The store's durable LSN has moved."""
        if not self._joined:
            return
        if self.phase in (WIPING, UPDATING):
            self.joining.durable()
        self.completion.durable(self.broker.store.durable_lsn)
        if self.completion.has_news and self.phase in (UPDATING, SYNCED) and len(self.members) > 1:
            self.completion.has_news = False
            self.say(events.ack(self.completion.numbers))

    def _answer(self) -> bool:
        """Do what waited for what is safe now."""
        if not self.primary or not self.quorate:
            return False
        actions = self.completion.safe()
        for action in actions:
            action()
        return bool(actions)


def _nothing() -> None:
    """The end of that step looks what the group says."""
