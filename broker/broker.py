"""The broker: what it consists of, what comes and goes with connections and links, and the end of each step.

All of it runs on the core. Nothing here blocks: what takes time (SQL, the disk) answers later, through `post` of the
core. Everything that must not be told before it is durable waits in one line, in LSN order (`line`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from ..base.clock import Clock
from ..base.errors import CairnError
from ..channel.words import ConnectionEnd, DriverEnd, Open, OutwardEnd, TerminalEnd
from ..store.interface import MessageStore
from . import lifetimes
from .access import Access
from .acquisitions import Acquisitions, Notes
from .auto_links import AutoLinks
from .cluster import Cluster
from .connections import Connections
from .connectors import Connectors
from .consumer import Consumer
from .direct import DirectAddresses
from .duplicates import forget_orphans
from .entry import Entry
from .exchange import Exchange, FanoutExchange
from .failures import recall_counts
from .finding import Finding
from .followings import Followings
from .former import Former
from .in_doubt import InDoubt
from .line import Line
from .link_routes import LinkRoutes
from .memory import DEFAULT_LIMIT_BYTES, Memory
from .network import Network
from .nodes import Arguments, Nodes
from .opening import Opening
from .places import Endpoint, ExchangePlace
from .policy import policy_of
from .queue import Queue
from .reading import Reader, Submit
from .returns import Returns
from .shaped import ShapedQueue
from .streams import STREAM, Streams
from .subscriptions import Subscriptions, subscribers
from .suspended import LinkEnds
from .timers import Timers
from .transactions import TransactionLimits, Transactions

DEFAULT_TRANSACTION_LIMITS = TransactionLimits()


class Post(Protocol):
    """Have something done on the core. Any thread."""

    def __call__(self, action: Callable[..., None], *args: Any) -> None: ...


class Broker(Finding):
    """All nodes of one broker, and the drivers on them."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        post: Post,
        submit: Submit,
        *,
        auto_create: Sequence[str] = ("*",),
        credit: int = 1000,
        memory_limit_bytes: int = DEFAULT_LIMIT_BYTES,
        access: Access | None = None,
        vouch: bool = False,
        transaction_limits: TransactionLimits = DEFAULT_TRANSACTION_LIMITS,
        anycast: Sequence[str] = (),
        multicast: Sequence[str] = (),
        container_id: str = "cairnmq",
        cluster: Cluster | None = None,
        notes: Notes | None = None,
    ) -> None:
        """*submit*: have something read on the reader's thread.

        *auto_create*: patterns of names for which a durable queue is made on first use; *credit*: per sender;
        *memory_limit_bytes*: how much content may be held in memory; *access*: who may do what, None for everybody
        everything; *vouch*: a message's user-id must be the user who sends it; *transaction_limits*: what clients may
        have open; *anycast*, *multicast*: patterns of addresses that messages pass through without being stored;
        *container_id*: what other brokers call this one;
        *cluster*: the one that it is a member of; *notes*: where acquisitions are written down, None for nowhere.
        """
        self.cluster = cluster
        self.store = store
        self.clock = clock
        self.reader = Reader(store, submit, post)
        self.memory = Memory(memory_limit_bytes)
        self.line = Line(store)
        self.timers = Timers(clock, post)
        self.acquisitions = None if notes is None else Acquisitions(notes, clock, self.timers)
        self.returns = Returns(self)
        self.subscriptions = Subscriptions(self)
        self.transactions = Transactions(self, transaction_limits)
        self.post = post
        super().__init__(access, DirectAddresses(anycast, multicast), auto_create)
        self.connections = Connections(clock)
        self.connectors = Connectors(self)
        self.link_routes = LinkRoutes(self)
        self.former = Former()
        self.why_gone: Callable[[ConnectionEnd], str] = _stays
        """Why a connection may not be there, now that it is opened; empty if it may."""
        self.endpoints: dict[str, Endpoint] = {}
        """By addresses, of which no queue is made: they begin with a dollar."""
        self.network = Network(self, container_id)
        self.auto_links = AutoLinks(self)
        self.streams = Streams(self)
        self.followings = Followings(self)
        self.connectors.users += (self.network, self.auto_links, self.followings)
        self.opening = Opening(self, credit)
        self.vouch = vouch
        self._is_stopping = False
        self._owned: dict[object, list[Queue | Exchange]] = {}
        self._withheld: dict[TerminalEnd, int] = {}
        if cluster is None:
            self.nodes = Nodes(store, post, self._queue, self._gone)
        else:
            self.nodes = cluster.nodes(self, self._queue, self._gone)
        recall_counts(self)
        self.in_doubt = InDoubt(self)
        self.suspended = LinkEnds(self)
        self._back: dict[Queue, list[tuple[Entry, bool, Callable[[], None]]]] = {}
        """What goes back to replicated queues."""
        self.followings.recover()
        self.later(forget_orphans, self)
        self.later(self.subscriptions.forget_orphans)
        if cluster is not None:
            self.later(cluster.attach, self)

    def _queue(self, name: str, queue_id: int, arguments: Arguments) -> Queue:
        policy = policy_of(name, arguments)
        queue = (ShapedQueue if policy.is_shaped else Queue)(self, name, queue_id, arguments)
        if self.cluster is not None and queue_id and self.cluster.replicates(name, policy):
            self.cluster.made(queue)
        queue.keep_counts()
        return queue

    # ---- channels -------------------------------------------------------------------------------------------------

    def is_routed(self, address: str | None) -> bool:
        if address is not None and address.startswith(STREAM):
            return True
        return bool(self.link_routes.all) and self.link_routes.may_fit(address)

    def connected(self, name: str, connection: OutwardEnd) -> None:
        self.connectors.connected(name, connection)

    def disconnected(self, name: str, connection: object, why: str) -> None:
        self.connectors.disconnected(name, connection, why)

    def resumes(self, user: str, container: str) -> bool:
        return self.suspended.resumes(user, container)

    def open(self, wish: Open, terminal: TerminalEnd) -> None:
        self.opening.open(wish, terminal)

    def make_dynamic(self, name: str, wish: Open) -> Queue:
        """A node of the client's own, which goes with the link unless another policy was asked for."""
        lifetime = lifetimes.asked_for(wish.terminus.properties)
        queue = self.nodes.add_queue(name, {"auto-delete": lifetime})
        if lifetime == lifetimes.CLOSE:
            queue.owner, queue.private = wish.connection, wish.to_client
            self._owned.setdefault(wish.connection, []).append(queue)
        return queue

    def make_topic(self, name: str, wish: Open) -> ExchangePlace:
        """The same for a topic: all who subscribe to it get what is sent there. It goes with the link."""
        exchange = self.nodes.add_exchange(name, FanoutExchange.type, {})
        exchange.owner, exchange.private = wish.connection, wish.to_client
        self._owned.setdefault(wish.connection, []).append(exchange)
        return ExchangePlace(exchange)

    def maker_closed(self, driver: DriverEnd, exchange: Exchange) -> None:
        """A link has gone, and perhaps the topic that was made for it."""
        if exchange.maker is driver and not exchange.gone:
            self.nodes.delete_exchange(exchange, _ignore, "it went with what it was made for")

    def driver_closed(self, driver: DriverEnd, queue: Queue, *, for_good: bool) -> None:
        """A link has gone, and perhaps the queue goes with it."""
        if queue.replicated and self.cluster is not None and isinstance(driver, Consumer):
            self.cluster.not_consuming(queue)
        if queue.maker is driver and not queue.gone:
            self.nodes.delete_queue(queue, _ignore, "it went with what it was made for")
        elif queue.policy.auto_delete:
            self.touch(queue)
        elif isinstance(driver, Consumer):
            self.subscriptions.channel_closed(driver, queue, for_good=for_good)

    def _look_whether_over(self, queue: Queue) -> None:
        queue.was_filled = queue.was_filled or queue.messages > 0
        if queue.replicated and self.cluster is not None and not self.cluster.deletes(queue):
            return
        if not queue.going and lifetimes.is_over(queue):
            self.nodes.delete_queue(queue, _ignore, "it is not needed any more")

    def link_closed(self, terminal: TerminalEnd) -> None:
        self.connections.link_went(terminal)
        if self.acquisitions is not None:
            self.acquisitions.link_went(terminal)
        self.auto_links.link_went(terminal)
        self.followings.link_went(terminal)

    def connection_opened(self, connection: ConnectionEnd) -> None:
        self.connections.came(connection)
        if why := self.why_gone(connection):  # it came in while that was changed
            connection.expel(why)
        if self.cluster is not None and (why_not := self.cluster.why_not_serving()):
            connection.expel(why_not, elsewhere=True)

    def session_begun(self, connection: object, number: int) -> None:
        self.connections.session_came(connection, number)

    def session_ended(self, connection: object, number: int) -> None:
        self.connections.session_went(connection, number)

    def connection_closed(self, connection: object) -> None:
        self.transactions.connection_closed(connection)
        self.connections.went(connection)
        for node in list(self._owned.get(connection, ())):
            if isinstance(node, Queue):
                self.nodes.delete_queue(node, _ignore, "it went with its connection")
            else:
                self.nodes.delete_exchange(node, _ignore, "it went with its connection")
        self._owned.pop(connection, None)

    def _gone(self, node: Queue | Exchange, why: str) -> None:
        """A node is not there any more: what is on it goes, and links on it are told."""
        if node.owner is not None and node in self._owned.get(node.owner, ()):
            self._owned[node.owner].remove(node)
        self.former.take_over(node)
        if isinstance(node, Queue) and node.replicated and self.cluster is not None:
            self.cluster.gone(node)
        kind = "queue" if isinstance(node, Queue) else "exchange"
        if isinstance(node, Queue):
            drivers = [*node.consumers, *node.browsers, *node.producers]
            self._purge(node)
        else:
            drivers = [*node.producers, *subscribers(node)]
            self.subscriptions.exchange_gone(node)
        for driver in drivers:
            driver.terminal.failure("amqp:resource-deleted", f"the {kind} {node.name!r} is gone: {why}")

    def _purge(self, queue: Queue) -> None:
        """A queue that is gone takes its messages along, in one record; SQL forgets it when that is durable."""
        queue.end()
        if queue.gate is not None:
            queue.gate.end()
        if queue.counts is not None:
            queue.counts.end()
        if queue.queue_id:
            lsn = self.store.purge(queue.queue_id, self.clock.wall_us(), is_final=True)
            self.line.when_durable(lsn, self.store.finish_destroy_queue, queue.queue_id, _ignore)

    def purge(self, queue: Queue, done: Callable[[int | Exception], None]) -> None:
        """Take all messages off *queue* but those that consumers and transactions have; *done* gets how many."""
        if queue.replicated and self.cluster is not None:
            self.cluster.purge(queue, done)
            return
        lsn = 0
        if queue.queue_id:
            keep = [entry.message_id for entry in queue.with_consumers() if entry.message_id]
            try:
                lsn = self.store.purge(queue.queue_id, self.clock.wall_us(), keep=keep)
            except CairnError as error:
                done(error)
                return
        self.line.when_durable(lsn, done, queue.clear())

    def stopping(self) -> None:
        """From now on connections are lost, and transactions rolled back, because the broker stops."""
        self._is_stopping = True

    def spares(self, queue: Queue) -> bool:
        """Whether what is lost now is no failure of *queue*'s messages: the broker stops. A cluster counts it."""
        return self._is_stopping and not queue.replicated

    # ---- credit ---------------------------------------------------------------------------------------------------

    def credit(self, terminal: TerminalEnd, wanted: int, *, replicated: bool = False) -> int:
        """How much credit a sender to durable queues gets of *wanted*: all of it, or none while the store is full.

        None either if some queue is *replicated*, or may be, and the cluster can't keep up. What is withheld is given
        when there is room again.
        """
        held = replicated and self.cluster is not None and self.cluster.holds
        if not wanted or not (held or self.store.full()):
            return wanted
        self._withheld[terminal] = self._withheld.get(terminal, 0) + wanted
        return 0

    def no_credit(self, terminal: TerminalEnd) -> None:
        """The channel is gone, and what was withheld from it."""
        self._withheld.pop(terminal, None)

    def room_again(self) -> None:
        """The store takes messages again, or the cluster: give the credit that was withheld."""
        if self.store.full() or (self.cluster is not None and self.cluster.holds):
            return
        withheld, self._withheld = self._withheld, {}
        for terminal, credit in withheld.items():
            terminal.grant(credit)

    # ---- steps ----------------------------------------------------------------------------------------------------

    def touch(self, queue: Queue) -> None:
        """Something changed there: hand out its messages at the end of the step."""
        self.line.dirty[queue] = None

    def later(self, action: Callable[..., None], *args: Any) -> None:
        """Do *action* on the core, after what waits there already."""
        self.post(action, *args)

    def when_answered(self, action: Callable[[], None]) -> None:
        if self.cluster is not None:
            self.cluster.when_answered(partial(self.line.when_durable, 0, action))
        else:
            self.line.when_durable(0, action)

    def order_back(self, queue: Queue, entry: Entry, failed: bool, then: Callable[[], None]) -> None:
        """A message goes back to a replicated queue, with all that do so in this step."""
        if not self._back:
            self.later(self.order_all_back)
        self._back.setdefault(queue, []).append((entry, failed, then))

    def order_all_back(self) -> None:
        """Now, at the latest."""
        assert self.cluster is not None
        back, self._back = self._back, {}
        for queue, those in back.items():
            entries = [(entry, failed) for entry, failed, _ in those]
            self.cluster.give_back(queue, entries, partial(_do_all, [then for _, _, then in those]))

    def held_up(self, then: Callable[[], None]) -> bool:
        return self.line.held_up(then) or (self.cluster is not None and self.cluster.held_up(then))

    def durable(self) -> None:
        """The store's durable LSN has moved."""
        self.line.move()
        if self.streams.feeders:
            self.streams.look()
        if self.cluster is not None:
            self.cluster.durable()

    def due_s(self) -> float:
        return self.timers.due_s

    def on_time(self) -> None:
        self.timers.run()

    def finish_step(self) -> None:
        if self.memory.starved:
            for queue in self.memory.take_relieved():
                self.touch(queue)
        line, cluster = self.line, self.cluster
        while (cluster is not None and cluster.step()) or line.dirty:
            dirty, line.dirty = line.dirty, {}
            for queue in dirty:
                if not queue.gone:
                    queue.dispatch()
                    if queue.policy.auto_delete:
                        self._look_whether_over(queue)
        if self.reader.put_off:
            self.reader.end_step()
        self.store.kick()


def _stays(connection: ConnectionEnd) -> str:
    return ""


def _do_all(actions: Sequence[Callable[[], None]]) -> None:
    for action in actions:
        action()


def _ignore(result: object) -> None:
    """Nobody waits to hear how that went; the log tells what went wrong."""
