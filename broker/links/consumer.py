"""Consumers: drivers of channels on which a client takes messages off a queue."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from ...amqp.native.proton_ffi import ACCEPTED, MODIFIED, REJECTED
from ...amqp.ports import IDLE, NOT_ACQUIRED, Delivery, Forward, Outcome, TerminalEnd
from ...base.callbacks import ignore
from ...base.errors import CairnError
from ...base.texts import counted
from ...store.contract.dequeue_reason import DequeueReason
from ..kernel.context import CoreContext
from ..kernel.idle_driver import CreditDriver
from ..kernel.memory_budget import ENTRY_BYTES
from ..kernel.sent_ahead import SentAhead
from ..messages.death_history import REJECTION, TOO_OFTEN
from ..messages.entry import Entry
from ..queues.queue import Queue
from ..transactions.transactional_acquisition import Acquisition
from .consumer_states import (
    CLOSED,
    CUT_OFF,
    DRAINING,
    ENDED,
    FLOWING,
    RECORDING_DRAIN,
    TABLE,
    ConsumerAction,
    ConsumerEvent,
)
from .context import LinkContext

log = logging.getLogger(__name__)

TAKE_AT_ONCE = 256
"""The limit of messages that are dequeued at once."""
MOST_LONG_BYTES = 16 << 20
"""The limit of long messages that are dequeued at once, as all of them is in memory then, except for the first."""
MOST_IDLE_DRAIN_S = 1.0
"""The time for which a drain waits for memory while its client settles nothing."""


_SILENCE_REMEDY = "it must send heartbeats while it works; see the guide \"Long tasks\""


class ReceivingDriver(CreditDriver):
    """The common base of drivers of links on which clients receive. Core only."""

    def __init__(self, core: CoreContext, terminal: TerminalEnd, user: str) -> None:
        """*user*: the user whose turns and memory the driver uses."""
        super().__init__()
        self.terminal = terminal
        self._user = user
        self._core = core
        self._sent_ahead = SentAhead(core.memory, terminal, user)


class Consumer(ReceivingDriver):
    """A consumer of a queue. Messages are dequeued with the outcome accepted or rejected, and requeued otherwise."""

    def __init__(
        self, links: LinkContext, terminal: TerminalEnd, queue: Queue, *, presettled: bool, user: str = ""
    ) -> None:
        super().__init__(links.core, terminal, user)
        self.queue = self._queue = queue
        self._links = links
        self._transactions = links.transactions
        self._presettled = presettled
        self.acquires: Acquisition | None = None
        """The transaction in which deliveries are acquired, if any."""
        self._state = FLOWING
        """A state of `consumer_states`."""
        self.unsettled: dict[Entry, None] = {}
        """Deliveries that the client has not settled (router guide C34)."""
        self._average_bytes = 0
        """The average memory of the messages of the last batch that was sent settled; 0 before the first one."""
        self._has_complete = False
        """Long messages of that batch are being loaded completely, or sent."""
        self._timed: Entry | None = None
        """The delivery that is measured: one at a time."""
        self._timed_from_s = 0.0
        self._waits_for_memory = False
        """A drain waits for memory."""
        self._join()

    def _join(self) -> None:
        self._queue.consumers.append(self)

    def leave(self) -> None:
        """Stop dispatching on the link."""
        self._queue.draining.pop(self, None)
        if self in self._queue.consumers:
            self._queue.consumers.remove(self)

    def request(self, limit: int, drain: bool) -> None:
        if limit == self._limit and not drain and self._state is FLOWING:
            return  # proton reports a flow for each transfer that it has sent, too
        self._limit = limit
        self._handle(ConsumerEvent.DRAIN if drain else ConsumerEvent.FLOW)

    def _handle(self, event: ConsumerEvent) -> None:
        """Enter the next state of the consumer, and do its action."""
        self._state, action = TABLE.get((self._state, event), (self._state, None))
        if action is ConsumerAction.DISPATCH:
            self._queue.draining.pop(self, None)
            self._core.schedule_dispatch(self._queue)
        elif action is ConsumerAction.DRAIN:
            self._drain()
        elif action is ConsumerAction.RETURN_CREDIT:
            self._queue.draining.pop(self, None)
            self.terminal.drained(self._spend(self._limit))

    def acquire_in(self, connection: object, txn_id: bytes, limit: int, drain: bool) -> None:
        """Handle a flow that names a transaction: see `amqp.ports.AcquiringEnd`."""
        if self._state in ENDED:
            return
        if self.acquires is not None:
            self.acquires.acquirers.pop(self, None)
            self.acquires = None
        if txn_id:
            transaction = self._transactions.find(connection, txn_id)
            error = NOT_ACQUIRED if self._presettled else transaction.failure  # settled messages cannot be recalled
            if error is not None:
                self._handle(ConsumerEvent.REFUSE)
                self.terminal.failure(*error)
                return
            self.acquires = transaction.acquisition
            self.acquires.acquirers[self] = None
        self._core.schedule_dispatch(self._queue)
        self.request(limit, drain)

    def _drain(self) -> None:
        """Dispatch available messages; when these are sent, return the rest of the credit."""
        self._queue.draining[self] = None
        self._queue.dispatch()

    def dispatched(self) -> None:
        if self._queue.contents.order.is_reading_for(self):
            return
        if self._lacks_memory() and self._state is DRAINING and self.room() > 0:
            self._wait_for_memory()
        else:
            self._handle(ConsumerEvent.DISPATCHED)

    def _wait_for_memory(self) -> None:
        """Let the drain wait until memory is released, unless the client does nothing that could release it."""
        if not self._waits_for_memory:
            self._waits_for_memory = True
            self._core.scheduler.after(MOST_IDLE_DRAIN_S, self._end_wait, self._progress())

    def _end_wait(self, before: tuple[int, ...]) -> None:
        """End the drain if memory is still missing, and there was no progress since *before*."""
        self._waits_for_memory = False
        if self._state is not DRAINING:
            return
        if before == self._progress() and self._lacks_memory():
            self._handle(ConsumerEvent.DISPATCHED)
        else:
            self._drain()

    def _progress(self) -> tuple[int, ...]:
        """Return figures that change when the client is sent messages, or settles some."""
        return self._forwarded, len(self.unsettled)

    def _lacks_memory(self) -> bool:
        """Return whether messages for the consumer can't be read for lack of memory."""
        return self._queue.is_starved and not self._queue.contents.order.is_reading_for(self)

    def take(self, entries: list[Entry]) -> None:
        if self._presettled:
            self._take_for_good(entries)
            return
        store = self._core.store
        self.unsettled.update(dict.fromkeys(entries))
        messages: list[Forward]
        if self._queue.contents.expiry is not None:
            now_us = self._core.clock.wall_us()
            messages = [(entry, entry.outgoing(store, now_us)) for entry in entries]
        else:
            messages = [
                (entry, entry.outgoing(store, 0) if entry.content is None or entry.previously_delivered
                 else entry.content)
                for entry in entries
            ]  # fmt: skip
        if self._core.acquisitions is not None:
            self._note(entries)
        if self._timed is None:
            self._timed, self._timed_from_s = entries[0], perf_counter()
        self._forwarded += len(messages)
        if self.acquires is None:
            self.terminal.forward(messages)
        else:
            self.acquires.acquire(self, entries)
            self.terminal.forward_in(self.acquires.id, messages)

    def _note(self, entries: Sequence[Entry]) -> None:
        """Note that *entries* were dispatched to the consumer."""
        if self._core.acquisitions is not None:
            self._core.acquisitions.record(self._queue.queue_id, self.terminal, entries)

    def room(self) -> int:
        if self._state is not FLOWING and self._state is not DRAINING:
            return 0
        if self.acquires is not None and self.acquires.failure is not None:
            return 0
        room = self._limit - self._forwarded
        return min(room, self._batch_room()) if self._presettled else room

    def _batch_room(self) -> int:
        """Return the number of messages that may be dequeued and sent settled at once, by their average memory."""
        average_bytes = self._average_bytes
        if not average_bytes:
            contents = self._queue.contents
            in_memory = len(contents.ready) + len(contents.returned)
            average_bytes = self._queue.memory.held_bytes // (in_memory + 1) + 1
        return min(TAKE_AT_ONCE, self._sent_ahead.room_bytes // average_bytes + 1)

    def _take_for_good(self, entries: list[Entry]) -> None:
        """Dequeue *entries* durably before they are sent: at most once."""
        self._handle(ConsumerEvent.RECORD)
        long: list[int] = []
        size_bytes = long_bytes = 0
        for number, entry in enumerate(entries):
            size_bytes += entry.held_bytes
            if entry.content is None:  # its records may be reclaimed before it is sent
                content_bytes = self._core.store.size_of(entry.message_id)
                if long and long_bytes + content_bytes > MOST_LONG_BYTES:
                    self._give_back(entries, number)
                    break
                long.append(entry.message_id)
                long_bytes += content_bytes
        self._average_bytes = max(1, (size_bytes + long_bytes) // len(entries))
        self._forwarded += len(entries)
        self.unsettled.update(dict.fromkeys(entries))
        self._note(entries)
        if long:
            self._has_complete = True
            self._core.complete_loads.load(self._user, self, long, long_bytes, partial(self._loaded, entries))
        else:
            now_us = self._core.clock.wall_us()
            self._send_for_good([(entry, entry.outgoing(self._core.store, now_us)) for entry in entries])

    def _give_back(self, entries: list[Entry], number: int) -> None:
        """Give the entries from *number* on back to the queue, for the next batch or another consumer."""
        for other in entries[number:]:
            self._queue.contents.give_back(other)
        del entries[number:]
        self._core.schedule_dispatch(self._queue)

    def _loaded(self, entries: list[Entry], contents: list[bytes | CairnError]) -> None:
        """Dispatch *entries*, whose long messages were read."""
        if self._state is CUT_OFF:
            return
        if self._state is CLOSED:
            self._let_go()
            for entry in entries:
                if not entry.is_dequeued:
                    self._queue.contents.give_back(entry)
            self._core.schedule_dispatch(self._queue)
            return
        complete, now_us = iter(contents), self._core.clock.wall_us()
        messages: list[Forward] = []
        for entry in entries:
            content = next(complete) if entry.content is None else entry.content
            if isinstance(content, CairnError):
                self._forwarded -= 1
                if not entry.is_dequeued:
                    self._queue.contents.put_aside(entry, content)
            else:
                messages.append((entry, entry.marked(content, now_us)))
        self._send_for_good(messages)

    def _send_for_good(self, messages: list[Forward]) -> None:
        if self._state is CUT_OFF:
            return
        present = [message for message in messages if not message[0].is_dequeued]  # others were removed meanwhile
        self._forwarded -= len(messages) - len(present)
        messages = present
        entries = [entry for entry, _ in messages]
        self._let_go()
        self._queue.order.take(entries, DequeueReason.ACCEPTED, self._taken, messages)

    def _taken(self, messages: list[Forward]) -> None:
        self.terminal.forward(messages)
        size_bytes = sum([
            len(content) + ENTRY_BYTES if type(content) is bytes else entry.held_bytes for entry, content in messages
        ])  # fmt: skip
        if self._has_complete:
            self._core.complete_loads.forwarded(self._user, self)
        if self._sent_ahead.add(size_bytes, self._recorded):
            self._recorded()

    def _recorded(self) -> None:
        """Handle that recorded messages were sent ahead, perhaps while the queue is still being dispatched."""
        if self._has_complete:
            self._has_complete = False
            self._core.complete_loads.end(self._user, self)
        if self._state is RECORDING_DRAIN:  # not now: each batch would be taken within the previous one
            self._core.post(self._handle, ConsumerEvent.RECORDED)
        else:
            self._handle(ConsumerEvent.RECORDED)

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        self._transactions.take(connection, self, provisional)

    def _let_go(self) -> None:
        self.unsettled.clear()
        self._queue.detached_consumers.pop(self, None)

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        if self._state is CUT_OFF:
            return
        if self._transactions.taken:
            outcomes = self._transactions.outside(self, outcomes)
        queue, unsettled = self._queue, self.unsettled
        settle: list[tuple[Delivery, int]] = []
        done: list[Entry] = []
        back: list[Outcome] = []
        for outcome in outcomes:
            delivery, entry, state = outcome[0], outcome[1], outcome[2]  # a slice takes twice as long
            unsettled.pop(entry, None)
            if entry.is_dequeued:  # deleted with its queue
                pass
            elif state == ACCEPTED:
                done.append(entry)
            else:
                back.append(outcome)
                continue
            if delivery is not None:
                settle.append((delivery, state))
        if self._timed is not None and self._timed not in unsettled:
            delivery_s, took_s = self._core.latencies.delivery_s, perf_counter() - self._timed_from_s
            delivery_s.counts[bisect_left(delivery_s.bounds, took_s)] += 1  # `observe`, without a call
            delivery_s.total += took_s
            self._timed = None
        if done:
            queue.order.take(done, DequeueReason.ACCEPTED, self.terminal.settle, settle)
        elif settle:
            queue.order.answer(self.terminal.settle, settle)
        if back and (settle := self.take_back(back)):
            queue.order.answer(self.terminal.settle, settle)

    def cut_off(self) -> list[Entry]:
        """Return all messages that the client has, which are no longer its own: its connection is being closed."""
        held = [entry for entry in self.unsettled if not entry.is_dequeued]
        taken = self._transactions.taken
        for entry in held:
            if entry in taken:
                taken[entry].forget(entry)
        self._handle(ConsumerEvent.CUT_OFF)
        if self._has_complete:
            self._core.complete_loads.end(self._user, self)
        self._let_go()
        self.leave()
        return held

    def take_back(self, outcomes: Sequence[Outcome]) -> list[tuple[Delivery, int]]:
        """Requeue or move away messages that were not accepted; return deliveries that can be settled at once."""
        queue = self._queue
        settle: list[tuple[Delivery, int]] = []
        for delivery, entry, state, failed, undeliverable, error, added in outcomes:
            if added:
                entry.annotations = added
            if error is not None:
                entry.error = error[:2]
            has_failed = state == MODIFIED and failed
            is_over = has_failed and queue.failed(entry)
            if state == MODIFIED and undeliverable:
                entry.excluded = (entry.excluded or set()) | {self}
            entry.previously_delivered = True
            if state == REJECTED:
                self._dead_letter(entry, REJECTION, delivery, state)
            elif is_over:
                self._dead_letter(entry, TOO_OFTEN, delivery, state)
            else:
                ended = () if delivery is None else ((delivery, state),)
                settle_ended = partial(self.terminal.settle, ended) if ended else ignore
                if added:
                    del entry.annotations
                    then = partial(self._annotated, entry, has_failed, settle_ended)
                    self._links.returns.annotate(queue, entry, added, then)
                elif queue.order.requeue(entry, has_failed, settle_ended):
                    settle += ended
        self._core.schedule_dispatch(queue)
        return settle

    def _annotated(
        self, entry: Entry, has_failed: bool, settle: Callable[[], None], lsn: int, is_to_requeue: bool
    ) -> None:
        """Requeue a message whose annotations were changed, and settle it when the change is durable."""
        if not is_to_requeue or self._queue.order.requeue(entry, has_failed, settle):
            self._core.commits.when_durable(lsn, settle)
        self._core.schedule_dispatch(self._queue)

    def over(self, entry: Entry) -> None:
        """Handle that the outcome of *entry*, which was settled in a transaction, has been applied."""

    def _dead_lettered(self, entry: Entry) -> None:
        """Handle that *entry* was moved away, or can't be."""

    def _dead_letter(self, entry: Entry, reason: str, delivery: Delivery | None, state: int) -> None:
        def dead_lettered(lsn: int) -> None:
            self._dead_lettered(entry)
            if delivery is not None:
                self._core.commits.when_durable(lsn, self.terminal.settle, [(delivery, state)])

        self._links.returns.dead_letter(self._queue, entry, reason, dead_lettered)

    def _report_lost(self, returned: Sequence[Entry]) -> None:
        """Record why messages return to their queue. A consumer that was silent is logged: its program may not notice.
        """
        queue, reason = self._queue, self.terminal.lost_reason
        if self._core.acquisitions is not None:
            text = f"connection lost{': ' if reason else ''}{reason}"
            self._core.acquisitions.record_returned(queue.queue_id, text, returned)
        if reason.startswith(IDLE):
            messages, client = counted(len(returned), "message"), self.terminal.client
            queue.silence = f"{client} was {reason} and lost {messages}; {_SILENCE_REMEDY}"
            about = {"event": "consumer.silent", "queue": queue.name}
            log.warning("queue %s: the consumer %s", queue.name, queue.silence, extra=about)

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._sent_ahead.close()
        self._handle(ConsumerEvent.CLOSE)
        self.leave()
        if self.acquires is not None:
            self.acquires.acquirers.pop(self, None)
            self.acquires = None
        if self._state is CUT_OFF:
            self._links.receiver_closed(self, self._queue, for_good=for_good)
            return
        queue = self._queue
        taken = self._transactions.taken
        lost = lost and not self._links.returns.spares(queue)
        if lost and returned:
            self._report_lost(returned)
        for entry in returned:
            self.unsettled.pop(entry, None)
            if entry.is_dequeued:
                continue
            if entry in taken and taken[entry].lose(entry, lost=lost):
                continue
            entry.previously_delivered = True
            if lost and queue.failed(entry):
                self._dead_letter(entry, TOO_OFTEN, None, 0)
            else:
                queue.order.release(entry, lost)
        if self._has_complete and self._core.complete_loads.end(self._user, self):
            self._loaded([*self.unsettled], [])
        if self.unsettled:
            queue.detached_consumers[self] = None
        else:
            queue.detached_consumers.pop(self, None)
        self._core.schedule_dispatch(queue)
        self._links.receiver_closed(self, queue, for_good=for_good)
