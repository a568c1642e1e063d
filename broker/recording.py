"""From a producer to its queues: what is let in is stored, shown when that is durable, and answered then.

Core only. What is let in, and where it goes, is for `producer` and `senders`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..amqp import header
from ..amqp.codec import Malformed
from ..channel.words import SETTLED, Delivery, Fragment, TerminalEnd
from .cluster import Kept
from .entry import Entry
from .gate import Gate
from .memory import ENTRY_BYTES, NO_MEMORY
from .queue import Queue
from .times import TimedEntry, stamped, tells_times, times_of

if TYPE_CHECKING:
    from .broker import Broker
    from .transaction import Transaction

Queues = tuple[Queue, ...]
"""Where a message goes: to nobody, one queue or several."""


class Recorder:
    """One channel on which a client sends: the way of its messages into queues, and of the answers back."""

    def __init__(self, broker: Broker, terminal: TerminalEnd) -> None:
        self.terminal = terminal
        self._broker = broker
        self._store = broker.store
        self._cluster = broker.cluster
        self._transaction: Transaction | None = None
        """The one that what is being looked at is for."""
        self._blocked_by: dict[Gate, None] = {}
        """Gates that withhold credit of this channel, or did."""

    def _record(self, queues: Queues, fragments: Sequence[Fragment]) -> None:
        """Record whole messages, and confirm and show them once all of them are durable."""
        if self._transaction is not None:
            self._transaction.post(queues, fragments)
            self._answer_in(self._transaction, queues, fragments)
            return
        store, alone = self._store, len(queues) == 1
        now_us = self._broker.clock.wall_us()
        lasting = queues if alone and queues[0].queue_id else tuple([queue for queue in queues if queue.queue_id])
        full = ""
        if len(lasting) == 1:
            full = store.full()
        elif lasting:
            full = store.full(sum([len(content) for _, content, _ in fragments]), len(fragments) * len(lasting))
        some_do_not_last = len(lasting) < len(queues)
        spare_bytes = queues[0].spare_bytes() if alone else min([queue.spare_bytes() for queue in queues])
        lives = any(queue.policy.message_ttl_ms for queue in queues)
        timed = False
        kept: list[tuple[bytes, bool]] = []
        confirmed: list[Delivery] = []
        unwanted: list[Delivery] = []
        turned_away: list[Delivery] = []
        for delivery, content, flags in fragments:
            try:
                head = header.parse(content)
                stored = head.durable and bool(lasting)
                # `may_have_times`, without a call
                if lives or head.ttl_ms is not None or (head.annotated and tells_times(content, head)):
                    content = stamped(content, head, now_us, always=lives)
                    timed = True
            except Malformed as error:
                self._reject((delivery,), 1, "amqp:decode-error", str(error))
                continue
            if stored and full:
                turned_away.append(delivery)
                continue
            if not stored or some_do_not_last:
                spare_bytes -= len(content) + ENTRY_BYTES
                if spare_bytes < 0:
                    self._refuse(queues, (delivery,), NO_MEMORY)
                    continue
            kept.append((content, stored))
            if flags & SETTLED:
                unwanted.append(delivery)
            else:
                confirmed.append(delivery)
        if turned_away:
            self._refuse(queues, turned_away, f"the store is full: {full}")
        if not kept:
            return
        if self._cluster is not None and (ordered := tuple([queue for queue in queues if queue.replicated])):
            answer: Callable[[], None] = partial(self._answer, queues, confirmed, unwanted)
            gone = f"the queue {ordered[0].name!r}"
            refused: Callable[[], None] = partial(self._reject_gone, [*confirmed, *unwanted], gone)
            others = tuple([queue for queue in queues if not queue.replicated])
            if others:  # the last of the two to be done tells
                answer = refused = once_more(answer)
                self._keep(others, kept, timed, now_us, answer)
            self._cluster.put(ordered, Kept(kept, timed), answer, refused)
            return
        self._keep(queues, kept, timed, now_us, self._answer, queues, confirmed, unwanted)

    def _keep(
        self,
        queues: Queues,
        kept: Sequence[tuple[bytes, bool]],
        timed: bool,
        now_us: int,
        then: Callable[..., None],
        *args: Any,
    ) -> None:
        """Store what lasts, show it when it is durable, and do *then*."""
        lasting = tuple([queue for queue in queues if queue.queue_id])
        contents = [content for content, stored in kept if stored] if lasting else []
        ids: Sequence[int] = ()
        lsn = 0
        if contents:
            ids, lsn = self._write(lasting, contents, now_us)
        shown = [(queue, entries_of(queue, kept, ids, timed)) for queue in queues]
        self._broker.line.show(lsn, shown, then, *args)

    def _write(self, queues: Queues, contents: list[bytes], now_us: int) -> tuple[Sequence[int], int]:
        """Store messages, each on all of *queues*, which are durable: their ids, and the LSN to wait for."""
        store = self._store
        ids, lsn = store.put_all(queues[0].queue_id, contents, now_us)
        for queue in queues[1:]:
            for message_id in ids:
                lsn = store.enqueue(message_id, queue.queue_id, now_us)
        return ids, lsn

    def _answer(self, queues: Queues, confirmed: list[Delivery], unwanted: list[Delivery]) -> None:
        """These are stored, or need no storing."""
        if confirmed:
            self.terminal.confirm(confirmed, self._credit(queues, len(confirmed)))
        if unwanted:
            self.terminal.release(unwanted, self._credit(queues, len(unwanted)))

    def _answer_in(self, transaction: Transaction, queues: Queues, fragments: Sequence[Fragment]) -> None:
        """These are in *transaction*, unless it has failed."""
        wanted = [delivery for delivery, _, flags in fragments if not flags & SETTLED]
        unwanted = [delivery for delivery, _, flags in fragments if flags & SETTLED]
        transaction.answer(self.terminal, wanted, unwanted, self._credit(queues, len(fragments)))

    def _credit(self, queues: Sequence[Queue], wanted: int) -> int:
        """What the client gets back for *wanted* messages to *queues*."""
        for queue in queues:
            if queue.gate is not None and wanted:
                wanted = queue.gate.credit(self.terminal, wanted)
                self._blocked_by[queue.gate] = None
        if any(queue.queue_id for queue in queues):
            replicated = self._cluster is not None and any(queue.replicated for queue in queues)
            return self._broker.credit(self.terminal, wanted, replicated=replicated)
        return wanted

    # ---- what is not stored ---------------------------------------------------------------------------------------

    def _put_nowhere(self, fragments: Sequence[Fragment]) -> None:
        """No queue wants these: they are done with as soon as all that came before them is."""
        if self._transaction is not None:
            self._answer_in(self._transaction, (), fragments)
            return
        confirmed = [delivery for delivery, _, flags in fragments if not flags & SETTLED]
        unwanted = [delivery for delivery, _, flags in fragments if flags & SETTLED]
        self._broker.line.when_durable(0, self._answer, (), confirmed, unwanted)

    def _reject_gone(self, deliveries: Sequence[Delivery], what: str) -> None:
        self._reject(deliveries, len(deliveries), "amqp:not-found", f"{what} is gone")

    def _reject(self, deliveries: Sequence[Delivery], credit: int, condition: str, why: str) -> None:
        if self._transaction is not None:
            self._transaction.refuse(self.terminal, deliveries, credit, condition, why)
        else:
            self.terminal.reject(deliveries, credit, condition, why)

    def _refuse(self, queues: Queues, deliveries: Sequence[Delivery], why: str) -> None:
        credit = self._credit(queues, len(deliveries))
        self._reject(deliveries, credit, "amqp:resource-limit-exceeded", why)


def once_more(then: Callable[[], None]) -> Callable[[], None]:
    """To be called twice, and does *then* the second time."""
    calls = 0

    def called() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            then()

    return called


def entries_of(queue: Queue, kept: Sequence[tuple[bytes, bool]], ids: Sequence[int], timed: bool) -> list[Entry]:
    """The places on *queue* of messages, and whether each is stored, in the order of *ids*; some may have times."""
    positions = queue.positions
    if not queue.queue_id:
        ids = ()
    if len(ids) == len(kept) and not timed:
        return [
            Entry(message_id, next(positions), content, len(content) + ENTRY_BYTES)
            for (content, _), message_id in zip(kept, ids, strict=True)
        ]
    fresh = iter(ids)
    entries: list[Entry] = []
    for content, stored in kept:
        message_id, position = next(fresh) if stored and ids else 0, next(positions)
        times = times_of(content, queue.policy.message_ttl_ms) if timed else None
        if times is None:
            entries.append(Entry(message_id, position, content, len(content) + ENTRY_BYTES))
        else:
            queue.begin_timing()
            entries.append(TimedEntry(message_id, position, content, len(content) + ENTRY_BYTES, times))
    return entries
