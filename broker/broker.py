"""The broker: finds the queue that an address means, opens drivers on it, and holds back what is not durable yet.

All of it runs on the core. Nothing here blocks: what takes time (SQL, the disk) answers later, through `post` of the
core. Everything that must not be told before it is durable waits in one line, in LSN order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Protocol
from uuid import uuid4

from ..base.clock import Clock
from ..base.errors import CairnError, DiskFull, SqlDenied, SqlReadOnly, SqlUnreachable
from ..channel.words import DriverEnd, Open, TerminalEnd
from ..store.interface import MessageStore
from ..store.wiring import QueueRow
from .browser import Browser
from .consumer import Consumer
from .memory import DEFAULT_LIMIT_BYTES, Memory
from .producer import AnonymousProducer, QueueProducer
from .queue import Queue
from .reading import Reader, Submit

MAX_NAME_BYTES = 1024
DYNAMIC_PREFIX = "dynamic-"
"""Of names the broker gives. None is made on first use: a reply that comes too late must not leave a queue behind."""


class Post(Protocol):
    """Have something done on the core. Any thread."""

    def __call__(self, action: Callable[..., None], *args: Any) -> None: ...


class Broker:
    """All queues of one broker."""

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
    ) -> None:
        """*submit*: have something read on the reader's thread.

        *auto_create*: patterns of names for which a durable queue is made on first use; *credit*: per sender;
        *memory_limit_bytes*: how much content may be held in memory.
        """
        self.store = store
        self.clock = clock
        self.reader = Reader(store, submit, post)
        self.memory = Memory(memory_limit_bytes)
        self.queues: dict[str, Queue] = {}
        self._post = post
        self._auto_create = tuple(auto_create)
        self._credit = credit
        self._creating: dict[str, list[Callable[[Queue | Exception], None]]] = {}
        self._dirty: dict[Queue, None] = {}
        self._waiting: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        self._owned: dict[object, list[Queue]] = {}
        self._withheld: dict[TerminalEnd, int] = {}
        messages = store.messages()
        for row in store.queues():
            queue = self.queues[row.name] = self._queue(row.name, row.id)
            if row.id in messages:
                queue.recovered(messages.pop(row.id))

    def _queue(self, name: str, queue_id: int) -> Queue:
        return Queue(name, queue_id, self.memory, self.reader)

    # ---- channels -------------------------------------------------------------------------------------------------

    def open(self, wish: Open, terminal: TerminalEnd) -> None:
        terminus = wish.terminus
        if terminus.dynamic:
            self._open_on(self._make_dynamic(wish.connection), wish, terminal, made=True)
        elif terminus.address is None:
            if wish.to_client:
                terminal.failure("amqp:invalid-field", "a source needs an address, or to be dynamic")
            else:
                terminal.opened(AnonymousProducer(self, terminal), None, self.credit(terminal, self._credit))
        else:
            self.find(terminus.address, lambda found: self._answer(found, wish, terminal))

    def find(self, address: str, then: Callable[[Queue | Exception], None]) -> None:
        """The queue that *address* means, made if need be and allowed; *then* gets it or why not, perhaps later."""
        queue = self.queues.get(address)
        if queue is not None:
            then(queue)
            return
        reason = self._why_not_created(address)
        if reason:
            then(LookupError(reason))
            return
        waiting = self._creating.setdefault(address, [])
        waiting.append(then)
        if len(waiting) == 1:
            self.store.create_queue(address, lambda row: self._post(self._created, address, row))

    def _why_not_created(self, address: str) -> str:
        wanted = any(fnmatchcase(address, pattern) for pattern in self._auto_create)
        if not wanted or address.startswith(("$", DYNAMIC_PREFIX)):
            shown = address if len(address) <= 80 else address[:80] + "..."
            return f"there is no queue {shown!r}, and none is made for it"
        if not address or len(address.encode()) > MAX_NAME_BYTES:
            return f"a queue's name has 1 to {MAX_NAME_BYTES} bytes, this one has {len(address.encode())}"
        return ""

    def why_not_made(self, error: Exception) -> tuple[str, str]:
        """The AMQP error for a queue that could not be made, and why."""
        if isinstance(error, DiskFull):
            return "amqp:resource-limit-exceeded", str(error)
        if isinstance(error, SqlUnreachable | SqlDenied | SqlReadOnly):  # where the server is, is nobody's business
            return "amqp:internal-error", "no queue can be made just now; the broker's log says why"
        return "amqp:internal-error", str(error) if isinstance(error, CairnError) else "see the broker's log"

    def _created(self, name: str, row: QueueRow | Exception) -> None:
        found: Queue | Exception
        if isinstance(row, Exception):
            found = row
        else:
            found = self.queues[name] = self._queue(name, row.id)
        for then in self._creating.pop(name):
            then(found)

    def _answer(self, found: Queue | Exception, wish: Open, terminal: TerminalEnd) -> None:
        if isinstance(found, Queue):
            self._open_on(found, wish, terminal)
        elif isinstance(found, LookupError):
            terminal.failure("amqp:not-found", str(found.args[0]))
        else:
            terminal.failure(*self.why_not_made(found))

    def _open_on(self, queue: Queue, wish: Open, terminal: TerminalEnd, made: bool = False) -> None:
        driver: DriverEnd
        if not wish.to_client:
            driver = QueueProducer(self, terminal, queue)
        elif wish.terminus.browse:
            driver = Browser(self, terminal, queue)
        else:
            driver = Consumer(self, terminal, queue, presettled=wish.presettled)
        if made:
            queue.maker = driver
        credit = 0 if wish.to_client else self._credit
        if queue.queue_id:
            credit = self.credit(terminal, credit)
        terminal.opened(driver, queue.name if made else None, credit)

    def _make_dynamic(self, connection: object) -> Queue:
        queue = self._queue(f"{DYNAMIC_PREFIX}{uuid4()}", 0)
        queue.owner = connection
        self.queues[queue.name] = queue
        self._owned.setdefault(connection, []).append(queue)
        return queue

    def driver_closed(self, driver: DriverEnd, queue: Queue) -> None:
        """A dynamic node goes with the link it was made for, as AMQP's delete-on-close says."""
        if queue.maker is driver and not queue.gone:
            self._owned[queue.owner].remove(queue)
            self._remove(queue)

    def connection_closed(self, connection: object) -> None:
        for queue in self._owned.pop(connection, ()):
            self._remove(queue)

    def _remove(self, queue: Queue) -> None:
        queue.end()
        del self.queues[queue.name]
        for taker in [*queue.consumers, *queue.browsers]:
            assert isinstance(taker, Consumer | Browser)
            taker.terminal.failure("amqp:resource-deleted", f"the queue {queue.name!r} went with what it was made for")

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
        self._dirty[queue] = None

    def when_durable(self, lsn: int, action: Callable[..., None], *args: Any) -> None:
        """Do *action* when the record at *lsn* is on the disk; with 0, when everything before it in line is."""
        if lsn < self.store.durable_lsn and not self._waiting:
            action(*args)
        else:
            self._waiting.append((lsn, action, args))

    def when_answered(self, action: Callable[[], None]) -> None:
        self.when_durable(0, action)

    def durable(self) -> None:
        """The store's durable LSN has moved: do what waited for it."""
        waiting, durable_lsn = self._waiting, self.store.durable_lsn
        while waiting and waiting[0][0] < durable_lsn:
            _, action, args = waiting.popleft()
            action(*args)

    def finish_step(self) -> None:
        if self.memory.starved:
            for queue in self.memory.take_relieved():
                self.touch(queue)
        while self._dirty:
            dirty, self._dirty = self._dirty, {}
            for queue in dirty:
                if not queue.gone:
                    queue.dispatch()
        self.store.kick()
