"""Consumers on resumable links: a client whose connection broke continues with the messages that it has (G12).

A message is also put on the link's own queue, and sent only when that is durable: so after a crash no other client gets
a message that a client may have. It is removed there right after its outcome is applied to its own queue. If a crash
comes between the two, the link's queue has a message that its own queue does not have: its outcome was stored, and the
next start removes it. The delivery's tag contains both IDs, so it is recognized. Core only.
"""

from __future__ import annotations

import logging
import os
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

from ...amqp.links.resume_state import UNKNOWN
from ...amqp.native.proton_ffi import ACCEPTED, MODIFIED, REJECTED, RELEASED
from ...amqp.ports import NOT_ACQUIRED, Claims, Delivery, KeptLink, Outcome, Resumable
from ...base.callbacks import ignore
from ...base.errors import CairnError
from ..kernel.memory_budget import ENTRY_BYTES
from ..links.consumer import Consumer
from ..links.consumer_states import ENDED, ConsumerEvent
from ..links.context import LinkContext
from ..links.filtered_consumer import FilteredConsumer
from ..messages.death_history import TOO_OFTEN
from ..messages.entry import Entry
from ..queues.queue import Queue
from .endpoint import LinkEndpoint, Ready, ResumableDriver

log = logging.getLogger(__name__)

_OUTCOMES = (ACCEPTED, REJECTED, RELEASED, MODIFIED)
RETRY_S = 1.0
"""Seconds until a dispatch that failed because the disk is full is tried again."""


class ReceiverEndpoint(LinkEndpoint):
    """The endpoint of a link on which a client receives; its deliveries are on the link's queue, too."""

    def __init__(self, links: LinkContext, drop: Callable[[LinkEndpoint], None], queue: Queue, source: Queue) -> None:
        super().__init__(links.core, drop, queue)
        self._returns = links.returns
        self._transactions = links.transactions
        self.source = source
        """The queue that has the messages."""
        self.unsettled: dict[Entry, None] = {}
        """Deliveries that the client has outside of transactions."""
        self.tags: dict[Entry, bytes] = {}
        """Tags of all dispatched deliveries that are not released."""
        self.burying: dict[Entry, None] = {}
        """Deliveries that are being moved away, without a recorded outcome yet."""
        self._waiting: list[Callable[[], None]] = []
        """Attaches that wait for the endpoint to be ready."""
        self._was_lost = False
        self._start = os.urandom(4)  # so that no tag of an earlier run is used again for a transient message
        self._unstored = count(1)

    def has(self, entry: Entry) -> None:
        """Return whether the client has had it since before the broker started."""
        self.unsettled[entry] = None
        self.tags[entry] = self._tag(entry)
        self.source.detached_consumers[self] = None

    def _tag(self, entry: Entry) -> bytes:
        own = entry.message_id.to_bytes(8) if entry.message_id else self._start + next(self._unstored).to_bytes(8)
        return urlsafe_b64encode(self.queue_id.to_bytes(8) + own)  # ASCII: libraries of clients show tags as text

    def assign(self, entries: Sequence[Entry]) -> int:
        """Assign *entries* to the client; return the LSN to wait for before they are sent. Raises `CairnError`."""
        store, now_us = self._core.store, self._core.clock.wall_us()
        lsn = 0
        for entry in entries:
            if entry.message_id:
                lsn = store.enqueue(entry.message_id, self.queue_id, now_us)
            self.tags[entry] = self._tag(entry)
            self.unsettled[entry] = None
        return lsn

    def release(self, entry: Entry) -> None:
        """Remove *entry* from the client's deliveries: its outcome has been recorded."""
        if self.tags.pop(entry, None) is not None:
            self.dequeue(entry.message_id)

    def steal(self) -> None:
        if isinstance(self.driver, ResumableConsumer):
            self.driver.leave()
        super().steal()

    def _attached(self, driver: ResumableDriver, claims: Claims, ready: Ready) -> None:
        self._core.commits.when_durable(0, self._compare, driver, claims, ready)

    def dead_lettered(self, entry: Entry) -> None:
        """Handle that *entry* was moved away."""
        self.burying.pop(entry, None)
        self.release(entry)
        if not self.burying:
            waiting, self._waiting = self._waiting, []
            for compare in waiting:
                compare()

    def _compare(self, driver: ResumableDriver, claims: Claims, ready: Ready) -> None:
        """Compare both sides: requeue deliveries that the client does not have, and apply its outcomes."""
        if self.driver is not driver or not isinstance(driver, ResumableConsumer):
            ready(None)
            return
        if self.burying:
            self._waiting.append(partial(self._attached, driver, claims, ready))
            return
        for entry in [entry for entry in self.tags if entry.is_dequeued]:  # removed with its queue, or purged
            self.unsettled.pop(entry, None)
            self.release(entry)
        if claims is UNKNOWN and self.tags:
            driver.terminal.failure("amqp:invalid-field", "the unsettled map of the attach is malformed")
            ready(None)
            return
        outcomes: list[Outcome] = []
        there: list[Entry] = []
        for entry in list(self.unsettled):
            tag = self.tags[entry]
            state = claims.states.get(tag)
            if state is None and claims.complete:
                self._give_back(entry)
            elif state in _OUTCOMES:
                outcomes.append(Outcome(None, entry, state, *claims.failures.get(tag, (False, False))))
            elif state is not None:
                there.append(entry)
        driver.outcomes(outcomes)
        driver.to_resume = there
        driver.waits = not claims.complete and claims is not UNKNOWN
        claims.states.clear()
        self._core.schedule_dispatch(self.source)
        self._core.commits.when_durable(0, self._answer, driver, ready)

    def _answer(self, driver: ResumableDriver, ready: Ready) -> None:
        kept = KeptLink({self.tags[entry]: 0 for entry in self.unsettled}, self.expires_s)
        ready(kept if self.driver is driver else None)

    def suspend(self, *, lost: bool) -> None:
        """Detach the link: the messages that the client has stay assigned to it, durably."""
        self._was_lost = lost
        for entry in self.unsettled:
            if entry.message_id and entry.content is not None and not entry.is_dequeued:
                entry.content = None
                self.source.memory.release(entry.held_bytes - ENTRY_BYTES)
                entry.held_bytes = ENTRY_BYTES
        self.source.detached_consumers[self] = None

    def ended(self) -> None:
        """Requeue the deliveries that the client has."""
        taken = self._transactions.taken
        for entry in list(self.tags):
            if entry in taken:
                taken[entry].left(entry)
            elif entry in self.unsettled:
                self._give_back(entry)
        self.tags.clear()
        self.source.detached_consumers.pop(self, None)
        self._core.schedule_dispatch(self.source)

    def _give_back(self, entry: Entry) -> None:
        del self.unsettled[entry]
        if not entry.is_dequeued:
            entry.previously_delivered = True
            if self._was_lost and self.source.failed(entry):
                self._returns.dead_letter(self.source, entry, TOO_OFTEN, ignore)
            else:
                self.source.contents.give_back(entry)
        self.release(entry)


class ResumableConsumer(Consumer):
    """A consumer on a resumable link; `end` is set before any other use."""

    end: ReceiverEndpoint
    to_resume: list[Entry]
    """Unsettled deliveries that the client still has from before it resumed."""
    is_stolen = False
    waits = False
    """True until the client has named all its unsettled deliveries: nothing new is dispatched."""
    _is_full = False

    def attach_to(self, end: ReceiverEndpoint) -> None:
        self.end = end
        self.to_resume = []
        self.unsettled = end.unsettled

    def _join(self) -> None:
        """Do nothing: the consumer joins the queue in `begin`, after the client was answered."""

    def begin(self) -> None:
        """Join the queue, since the link is open."""
        if not (self._state in ENDED or self.is_stolen):
            self._queue.detached_consumers.pop(self.end, None)
            super()._join()

    def room(self) -> int:
        return 0 if self.waits or self.to_resume or self._is_full else super().room()

    def acquire_in(self, connection: object, txn_id: bytes, limit: int, drain: bool) -> None:
        """Release the messages without requeuing: another link of the client may settle them."""
        if txn_id:
            self.terminal.failure(*NOT_ACQUIRED)

    def request(self, limit: int, drain: bool) -> None:
        if self.is_stolen:
            return
        room = max(0, limit - self._forwarded)
        to_resume = [entry for entry in self.to_resume if not entry.is_dequeued]
        resumed, self.to_resume = to_resume[:room], to_resume[room:]
        if resumed:
            self._forwarded += len(resumed)
            self._send(resumed, is_resumed=True)
        super().request(limit, drain)

    def take(self, entries: list[Entry]) -> None:
        self._handle(ConsumerEvent.RECORD)
        try:
            lsn = self.end.assign(entries)
        except CairnError as error:
            self._put_off(entries, error)
            return
        self._note(entries)
        self._forwarded += len(entries)
        self._core.commits.when_durable(lsn, self._assigned, entries)

    def _put_off(self, entries: list[Entry], error: CairnError) -> None:
        """Retry later: the assignments cannot be stored now, and waiting loses nothing."""
        self._is_full = True
        for entry in entries:
            self.unsettled.pop(entry, None)
            self._queue.contents.give_back(entry)
            self.end.release(entry)
        about = {"event": "link.tag-not-stored", "queue": self._queue.name}
        log.error("queue %s: a delivery waits, as its tag can't be stored: %s", self._queue.name, error, extra=about)
        self._core.post(self._handle, ConsumerEvent.RECORDED)  # not now: the queue is being dispatched
        self._core.scheduler.after(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._is_full = False
        self._core.schedule_dispatch(self._queue)

    def _assigned(self, entries: list[Entry]) -> None:
        if self._state not in ENDED and not self.is_stolen:  # else they wait for the client to resume
            present = [entry for entry in entries if not entry.is_dequeued]
            self._forwarded -= len(entries) - len(present)
            self._send(present, is_resumed=False)
            self._recorded()

    def _send(self, entries: list[Entry], *, is_resumed: bool) -> None:
        store, tags, now_us = self._core.store, self.end.tags, self._core.clock.wall_us()
        self.terminal.forward_resuming(
            [Resumable(entry, entry.outgoing(store, now_us), tags[entry], is_resumed) for entry in entries]
        )

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        if self.is_stolen:
            return
        super().outcomes(outcomes)
        taken = self._transactions.taken
        for outcome in outcomes:
            if outcome.tag not in self.unsettled and outcome.tag not in taken:
                self.over(outcome.tag)

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        if not self.is_stolen:
            super().outcomes_in(connection, provisional)

    def over(self, entry: Entry) -> None:
        if entry not in self.end.burying:
            self.end.release(entry)

    def _dead_letter(self, entry: Entry, reason: str, delivery: Delivery | None, state: int) -> None:
        self.end.burying[entry] = None
        super()._dead_letter(entry, reason, delivery, state)

    def _dead_lettered(self, entry: Entry) -> None:
        self.end.dead_lettered(entry)

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._handle(ConsumerEvent.CLOSE)
        self.leave()
        if self.end.driver is self and not for_good:
            self.end.suspend(lost=lost)
        self.end.left(self, for_good=for_good)
        self._links.receiver_closed(self, self._queue, for_good=for_good)


class FilteredResumableConsumer(ResumableConsumer, FilteredConsumer):
    """A consumer with a selector on a resumable link.

    It scans the queue from the start each time that its client attaches, and not before the deliveries that the client
    does not have are requeued: so no requeued message is missed. The messages that the client has were selected when
    they were sent, and stay assigned to it, whatever its present selector.
    """

    def look(self) -> None:
        if not self.is_stolen:  # its earlier reads may still be delivered
            super().look()
