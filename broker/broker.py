"""The broker: finds what an address means, opens drivers on it, and ends each step.

All of it runs on the core. Nothing here blocks: what takes time (SQL, the disk) answers later, through `post` of the
core. Everything that must not be told before it is durable waits in one line, in LSN order (`line`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Protocol
from uuid import uuid4

from ..amqp.codec import Malformed
from ..base.clock import Clock
from ..base.errors import CairnError, DiskFull, SqlDenied, SqlReadOnly, SqlUnreachable
from ..channel.words import ConnectionEnd, DriverEnd, Open, TerminalEnd
from ..store.interface import MessageStore
from . import addresses, lifetimes
from .access import BROWSE, CONNECT, CREATE, RECEIVE, SEND, Access, Forbidden
from .addresses import Kind
from .browser import Browser
from .connections import Connections
from .consumer import Consumer
from .coordinator import CREDIT, Coordinator
from .direct import Direct, DirectAddresses
from .direct_receiver import DirectReceiver
from .direct_sender import DirectProducer
from .duplicates import forget_orphans
from .exchange import Exchange
from .former import Former
from .in_doubt import InDoubt
from .line import Line
from .memory import DEFAULT_LIMIT_BYTES, Memory
from .nodes import MAX_NAME_BYTES, Arguments, Nodes
from .places import Endpoint, ExchangePlace, Place
from .policy import policy_of
from .queue import Queue
from .reading import Reader, Submit
from .remembering import RememberingExchangeProducer, RememberingQueueProducer
from .returns import Returns
from .selecting import SelectingBrowser, SelectingConsumer, asked_for
from .selector import SelectorError
from .senders import AnonymousProducer, ExchangeProducer, QueueProducer
from .shaped import ShapedQueue
from .subscriptions import NAME_PREFIX as SUBSCRIPTION_PREFIX
from .subscriptions import Subscriptions
from .suspended import LinkEnds
from .timers import Timers
from .transactions import TransactionLimits, Transactions

DEFAULT_TRANSACTION_LIMITS = TransactionLimits()
DYNAMIC_PREFIX = "dynamic-"
"""Of names the broker gives. None is made on first use: a reply that comes too late must not leave a queue behind."""


class Post(Protocol):
    """Have something done on the core. Any thread."""

    def __call__(self, action: Callable[..., None], *args: Any) -> None: ...


class Broker:
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
    ) -> None:
        """*submit*: have something read on the reader's thread.

        *auto_create*: patterns of names for which a durable queue is made on first use; *credit*: per sender;
        *memory_limit_bytes*: how much content may be held in memory; *access*: who may do what, None for everybody
        everything; *vouch*: a message's user-id must be the user who sends it; *transaction_limits*: what clients may
        have open; *anycast*, *multicast*: patterns of addresses that messages pass through without being stored.
        """
        self.store = store
        self.clock = clock
        self.reader = Reader(store, submit, post)
        self.memory = Memory(memory_limit_bytes)
        self.line = Line(store)
        self.timers = Timers(clock, post)
        self.returns = Returns(self)
        self.subscriptions = Subscriptions(self)
        self.transactions = Transactions(self, transaction_limits)
        self.post = post
        self.direct = DirectAddresses(anycast, multicast)
        self.connections = Connections(clock)
        self.former = Former()
        self.endpoints: dict[str, Endpoint] = {}
        """By addresses, of which no queue is made: they begin with a dollar."""
        self._auto_create = tuple(auto_create)
        self._credit = credit
        self.access = access
        self.vouch = vouch
        self._owned: dict[object, list[Queue | Exchange]] = {}
        self._withheld: dict[TerminalEnd, int] = {}
        self.nodes = Nodes(store, post, self._queue, self._gone)
        self.in_doubt = InDoubt(self)
        self._suspended = LinkEnds(self)
        self.later(forget_orphans, self)

    def _queue(self, name: str, queue_id: int, arguments: Arguments) -> Queue:
        kind = ShapedQueue if policy_of(name, arguments).is_shaped else Queue
        return kind(self, name, queue_id, arguments)

    # ---- addresses ------------------------------------------------------------------------------------------------

    def place_of(self, address: str, capabilities: Iterable[str] = ()) -> Place | None:
        """Where *address* leads; None if there is nothing yet."""
        kind, name = asked = addresses.parse(address, capabilities)
        nodes = self.nodes
        if name.startswith("$"):  # the broker's own
            return None
        if kind is not Kind.TOPIC:
            queue = nodes.queues.get(name)
            if queue is not None or kind is Kind.QUEUE:
                return None if queue is None or queue.going else queue
        exchange = nodes.exchanges.get(name)
        if exchange is not None:
            return ExchangePlace(exchange)
        exchange = nodes.exchanges.get(asked.exchange) if asked.key else None
        if exchange is not None:
            return ExchangePlace(exchange, asked.key)
        return ExchangePlace(nodes.exchanges[addresses.TOPICS], name) if kind is Kind.TOPIC else self.direct.find(name)

    def find(
        self,
        address: str,
        then: Callable[[Place | Exception], None],
        capabilities: Iterable[str] = (),
        *,
        user: str = "",
        operation: str = SEND,
        connection: object = None,
    ) -> None:
        """What *address* means, made if need be and allowed; *then* gets it or why not, perhaps later.

        *operation*: what *user* wants there, over *connection*.
        """
        place = self.place_of(address, capabilities)
        name = addresses.parse(address, capabilities).name if place is None else place.name
        if self.access is not None or operation != SEND:
            why = self._why_not_used(place, name, user, operation, connection)
            if not why and place is None:
                why = self.why_not(user, CREATE, name)
            if why:
                then(Forbidden(why))
                return
        self._find(place, name, then)

    def find_for_itself(self, address: str, then: Callable[[Place | Exception], None]) -> None:
        """The same for the broker, which may do everything: whoever named the address was asked then."""
        place = self.place_of(address)
        self._find(place, addresses.parse(address).name, then)

    def _find(self, place: Place | None, name: str, then: Callable[[Place | Exception], None]) -> None:
        reason = "" if place is not None else self._why_not_created(name)
        if place is not None:
            then(place)
        elif reason:
            then(LookupError(reason))
        else:
            self.nodes.create_queue(name, self.nodes.template_for(name), then)

    def resumes(self, user: str, container: str) -> bool:
        return self._suspended.resumes(user, container)

    def why_not_in(self, user: str) -> str:
        return self.why_not(user, CONNECT)

    def why_not(self, user: str, operation: str, name: str = "") -> str:
        """Why *user* may not do *operation* on *name*; empty if they may. Any thread."""
        return "" if self.access is None else self.access.why_not(user, operation, name)

    def _why_not_used(self, place: Place | None, name: str, user: str, operation: str, connection: object) -> str:
        """As `why_not`. What a connection made for itself is its own, and to read from, nobody else's (A14)."""
        if isinstance(place, Queue) and place.owner is not None:
            if place.owner is connection:
                return ""
            if operation != SEND and place.private:
                return f"{name!r} belongs to another connection"
        return self.why_not(user, operation, name)

    def _why_not_created(self, address: str) -> str:
        wanted = any(fnmatchcase(address, pattern) for pattern in self._auto_create)
        if not wanted or address.startswith(("$", DYNAMIC_PREFIX, SUBSCRIPTION_PREFIX)):
            shown = address if len(address) <= 80 else address[:80] + "..."
            return f"there is no queue {shown!r}, and none is made for it"
        if not address or len(address.encode()) > MAX_NAME_BYTES:
            return f"a queue's name has 1 to {MAX_NAME_BYTES} bytes, this one has {len(address.encode())}"
        return ""

    def why_not_made(self, error: Exception) -> tuple[str, str]:
        """The AMQP error for a queue that could not be made, and why."""
        if isinstance(error, Forbidden):
            return "amqp:unauthorized-access", str(error)
        if isinstance(error, DiskFull):
            return "amqp:resource-limit-exceeded", str(error)
        if isinstance(error, SqlUnreachable | SqlDenied | SqlReadOnly):  # where the server is, is nobody's business
            return "amqp:internal-error", "no queue can be made just now; the broker's log says why"
        return "amqp:internal-error", str(error) if isinstance(error, CairnError) else "see the broker's log"

    # ---- channels -------------------------------------------------------------------------------------------------

    def open(self, wish: Open, terminal: TerminalEnd) -> None:
        terminus = wish.terminus
        self.connections.link_came(wish, terminal)
        if terminus.coordinator and not wish.to_client:
            terminal.opened(Coordinator(self, terminal, wish.connection), None, CREDIT)
            return
        try:
            asked_for(terminus.filters)
            lifetimes.asked_for(terminus.properties)
        except (Malformed, SelectorError) as error:
            terminal.failure("amqp:invalid-field", str(error))
            return
        endpoint = self.endpoints.get(terminus.address or "")
        if terminus.dynamic:
            name = f"{DYNAMIC_PREFIX}{uuid4()}"
            if why := self.why_not(wish.user, CREATE, name):
                terminal.failure("amqp:unauthorized-access", why)
            else:
                self._open_on(self._make_dynamic(name, wish), wish, terminal, made=True)
        elif terminus.address is None:
            if wish.to_client and terminus.absent:
                self.subscriptions.find(wish, terminal)
            elif wish.to_client:
                terminal.failure("amqp:invalid-field", "a source needs an address, or to be dynamic")
            else:
                producer = AnonymousProducer(self, terminal, wish.container, wish.user)
                terminal.opened(producer, None, self.credit(terminal, self._credit))
        elif endpoint is not None:
            if why := self.why_not(wish.user, RECEIVE if wish.to_client else SEND, terminus.address):
                terminal.failure("amqp:unauthorized-access", why)
            else:
                endpoint.open(wish, terminal)
        else:
            self.find(
                terminus.address,
                lambda found: self._answer(found, wish, terminal),
                terminus.capabilities,
                user=wish.user,
                operation=SEND if not wish.to_client else BROWSE if terminus.browse else RECEIVE,
                connection=wish.connection,
            )

    def _answer(self, found: Place | Exception, wish: Open, terminal: TerminalEnd) -> None:
        if isinstance(found, Queue):
            self._open_on(found, wish, terminal)
        elif isinstance(found, ExchangePlace):
            self._open_through(found, wish, terminal)
        elif isinstance(found, Direct):
            self._open_direct(found, wish, terminal)
        elif isinstance(found, LookupError):
            terminal.failure("amqp:not-found", str(found.args[0]))
        else:
            terminal.failure(*self.why_not_made(found))

    def _open_on(self, queue: Queue, wish: Open, terminal: TerminalEnd, made: bool = False) -> None:
        driver: DriverEnd
        filters = b""
        if not wish.to_client and wish.claims is not None and queue.queue_id and not made:
            queue.was_linked = True
            make = partial(RememberingQueueProducer, self, terminal, queue, wish.user)
            self._suspended.open(wish, terminal, make, lambda: self._credit_on(queue, terminal))
            return
        if not wish.to_client:
            driver = QueueProducer(self, terminal, queue, wish.user)
        elif queue.policy.exclusive and (queue.consumers or queue.selecting) and not wish.terminus.browse:
            terminal.failure("amqp:resource-locked", f"the queue {queue.name!r} has a consumer, and may have only one")
            return
        elif wish.terminus.filters and not wish.terminus.browse and queue.policy.assigns:
            terminal.failure("amqp:not-implemented", f"the queue {queue.name!r} says who gets what: nobody can select")
            return
        else:
            driver, filters = self._receiver(queue, wish, terminal)
        queue.was_linked = True
        if made and queue.policy.auto_delete == lifetimes.CLOSE:
            queue.maker = driver
        credit = 0 if wish.to_client else self._credit_on(queue, terminal)
        terminal.opened(driver, queue.name if made else None, credit, filters=filters)

    def _credit_on(self, queue: Queue, terminal: TerminalEnd) -> int:
        """What a new sender to *queue* gets."""
        credit = self._credit if queue.gate is None else queue.gate.credit(terminal, self._credit)
        return self.credit(terminal, credit) if queue.queue_id else credit

    def _receiver(self, queue: Queue, wish: Open, terminal: TerminalEnd) -> tuple[DriverEnd, bytes]:
        """A driver that takes or looks at messages, and the filters that it applies."""
        selector, filters = asked_for(wish.terminus.filters)
        if selector is None:
            if wish.terminus.browse:
                return Browser(self, terminal, queue), filters
            return Consumer(self, terminal, queue, presettled=wish.presettled), filters
        if wish.terminus.browse:
            return SelectingBrowser(self, terminal, queue, selector), filters
        return SelectingConsumer(self, terminal, queue, presettled=wish.presettled, selector=selector), filters

    def _open_through(self, place: ExchangePlace, wish: Open, terminal: TerminalEnd) -> None:
        if not wish.to_client and wish.claims is not None:
            make = partial(RememberingExchangeProducer, self, terminal, place, wish.container, wish.user)
            self._suspended.open(wish, terminal, make, lambda: self.credit(terminal, self._credit))
        elif not wish.to_client:
            driver = ExchangeProducer(self, terminal, place, wish.container, wish.user)
            terminal.opened(driver, None, self.credit(terminal, self._credit))
        else:
            self.subscriptions.open(place, wish, terminal)

    def _open_direct(self, place: Direct, wish: Open, terminal: TerminalEnd) -> None:
        if not wish.to_client:
            sender = DirectProducer(self, terminal, place, wish.user, self._credit)
            terminal.opened(sender, None, sender.first_credit)
        elif wish.terminus.browse or asked_for(wish.terminus.filters)[0] is not None:
            why = f"at {place.name!r} nothing is stored, so there is nothing to browse, and nothing to select from"
            terminal.failure("amqp:not-implemented", why)
        else:
            receiver = DirectReceiver(self, terminal, place, presettled=wish.presettled)
            terminal.opened(receiver, None, 0)
            receiver.join()

    def _make_dynamic(self, name: str, wish: Open) -> Queue:
        """A node of the client's own, which goes with the link unless another policy was asked for."""
        lifetime = lifetimes.asked_for(wish.terminus.properties)
        queue = self.nodes.add_queue(name, {"auto-delete": lifetime})
        if lifetime == lifetimes.CLOSE:
            queue.owner, queue.private = wish.connection, wish.to_client
            self._owned.setdefault(wish.connection, []).append(queue)
        return queue

    def driver_closed(self, driver: DriverEnd, queue: Queue, *, for_good: bool) -> None:
        """A link has gone, and perhaps the queue goes with it."""
        if queue.maker is driver and not queue.gone:
            self.nodes.delete_queue(queue, _ignore, "it went with what it was made for")
        elif queue.policy.auto_delete:
            self.touch(queue)
        elif isinstance(driver, Consumer):
            self.subscriptions.channel_closed(queue, for_good=for_good)

    def _look_whether_over(self, queue: Queue) -> None:
        queue.was_filled = queue.was_filled or queue.messages > 0
        if not queue.going and lifetimes.is_over(queue):
            self.nodes.delete_queue(queue, _ignore, "it is not needed any more")

    def link_closed(self, terminal: TerminalEnd) -> None:
        self.connections.link_went(terminal)

    def connection_opened(self, connection: ConnectionEnd) -> None:
        self.connections.came(connection)

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
        kind = "queue" if isinstance(node, Queue) else "exchange"
        if isinstance(node, Queue):
            drivers = [*node.consumers, *node.browsers, *node.producers]
            self._purge(node)
        else:
            drivers = [*node.producers]
        for driver in drivers:
            driver.terminal.failure("amqp:resource-deleted", f"the {kind} {node.name!r} is gone: {why}")

    def _purge(self, queue: Queue) -> None:
        """A queue that is gone takes its messages along, in one record; SQL forgets it when that is durable."""
        queue.end()
        if queue.gate is not None:
            queue.gate.end()
        if queue.queue_id:
            lsn = self.store.purge(queue.queue_id, self.clock.wall_us(), is_final=True)
            self.line.when_durable(lsn, self.store.finish_destroy_queue, queue.queue_id, _ignore)

    def purge(self, queue: Queue, done: Callable[[int | Exception], None]) -> None:
        """Take all messages off *queue* but those that consumers and transactions have; *done* gets how many."""
        lsn = 0
        if queue.queue_id:
            keep = [entry.message_id for entry in queue.with_consumers() if entry.message_id]
            try:
                lsn = self.store.purge(queue.queue_id, self.clock.wall_us(), keep=keep)
            except CairnError as error:
                done(error)
                return
        self.line.when_durable(lsn, done, queue.clear())

    # ---- credit ---------------------------------------------------------------------------------------------------

    def credit(self, terminal: TerminalEnd, wanted: int) -> int:
        """How much credit a sender to durable queues gets of *wanted*: all of it, or none while the store is full.

        What is withheld is given when there is room again.
        """
        if not wanted or not self.store.full():
            return wanted
        self._withheld[terminal] = self._withheld.get(terminal, 0) + wanted
        return 0

    def no_credit(self, terminal: TerminalEnd) -> None:
        """The channel is gone, and what was withheld from it."""
        self._withheld.pop(terminal, None)

    def room_again(self) -> None:
        """The store takes messages again: give the credit that was withheld."""
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
        self.line.when_durable(0, action)

    def held_up(self, then: Callable[[], None]) -> bool:
        return self.line.held_up(then)

    def durable(self) -> None:
        """The store's durable LSN has moved."""
        self.line.move()

    def due_s(self) -> float:
        return self.timers.due_s

    def on_time(self) -> None:
        self.timers.run()

    def finish_step(self) -> None:
        if self.memory.starved:
            for queue in self.memory.take_relieved():
                self.touch(queue)
        line = self.line
        while line.dirty:
            dirty, line.dirty = line.dirty, {}
            for queue in dirty:
                if not queue.gone:
                    queue.dispatch()
                    if queue.policy.auto_delete:
                        self._look_whether_over(queue)
        if self.reader.put_off:
            self.reader.end_step()
        self.store.kick()


def _ignore(result: object) -> None:
    """Nobody waits to hear how that went; the log tells what went wrong."""
