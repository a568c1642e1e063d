"""The handling of messages that were not accepted: requeued, now or later, or moved to another address.

A message that is moved is dequeued and enqueued at its new place in one transaction (`moves`). `message_times` decides
which times it keeps. A message that would return to a queue without a client's action is dropped (`death_history`).
Core only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from ...amqp.codec.primitives import Malformed
from ...base.callbacks import ignore
from ...base.errors import CairnError
from ..kernel.context import CoreContext
from ..messages import death_history
from ..messages.death_history import EXPIRY
from ..messages.entry import Entry
from ..nodes.exchanges import way_through
from ..nodes.resolver import Resolver
from ..nodes.targets import AddressTarget, ExchangeTarget
from ..queues.ends import SourceQueue, TargetQueue
from ..queues.queue import Queue
from .moves import REASONS, Moves, combined, shown

log = logging.getLogger(__name__)

MOST_CYCLES = 1000
"""Dead-letter cycles that are logged."""
RETRY_S = 1.0
"""Seconds until a message that could not be moved away is tried again."""
Found = tuple[list[TargetQueue], bytes]
"""The target queues of a message, and its content there."""
Then = Callable[[int], None]
"""A callback that gets the LSN to wait for before the move is reported."""


class Returns:
    """The ways back and away, for all queues of a broker."""

    def __init__(self, core: CoreContext, resolver: Resolver, moves: Moves) -> None:
        self._core = core
        self._resolver = resolver
        self._moves = moves
        self.is_stopping = False
        """Connections are lost, and transactions rolled back, because the broker stops."""
        self._cycles: set[tuple[str, str]] = set()
        """Pairs of queues between which a cycle was logged."""

    def stopping(self) -> None:
        """Handle that the broker stops: from now on connections are closed, and transactions rolled back."""
        self.is_stopping = True

    def give_back(
        self, queue: SourceQueue, entry: Entry, *, failed: bool, back: Callable[[Entry], None] | None = None
    ) -> None:
        """Requeue a message at its place; a failed delivery is delayed first if the policy requires it.

        *back*: requeues it, if the queue itself does not.
        """
        back = back or queue.contents.give_back
        delay_ms = queue.policy.retry_delay_ms if failed else 0
        if not delay_ms or queue.is_deleted:
            back(entry)
            return
        delay_ms = min(delay_ms << min(entry.failures - 1, 32), max(queue.policy.max_retry_delay_ms, delay_ms))
        queue.contents.delayed[entry] = None
        self._core.scheduler.after(delay_ms / 1000, self._come_back, queue, entry, back)

    def _come_back(self, queue: SourceQueue, entry: Entry, back: Callable[[Entry], None]) -> None:
        contents = queue.contents
        if entry in contents.delayed:
            del contents.delayed[entry]
            if contents.stands(entry):  # it has expired, and was kept outside of the order
                contents.watch(entry)
            else:
                back(entry)
            self._core.schedule_dispatch(queue)

    def spares(self, queue: SourceQueue) -> bool:
        """Return whether a message lost now is no failed delivery: the broker stops. A cluster counts it."""
        return self.is_stopping and not queue.replicated

    def dead_letter(self, queue: SourceQueue, entry: Entry, reason: str, then: Then) -> None:
        """Off the queue: to the address that its policy names for such messages, or nowhere."""
        for wrap in self._core.events.burials:
            then = wrap(queue, entry, reason, then)
        policy = queue.policy
        address = policy.expiry_address if reason is EXPIRY else policy.dead_letter_address
        if not address or queue.is_deleted:
            _count(queue, reason)
            self._let_go(queue, entry, reason, then)
            return
        queue.contents.delayed[entry] = None
        found = partial(self._found, queue, entry, reason, then)
        self._find(entry, address, found, partial(self._is_unreadable, queue, entry, then))

    def annotate(self, queue: SourceQueue, entry: Entry, annotations: bytes, then: Callable[[int, bool], None]) -> None:
        """Combine *annotations*, an encoded map, with those of a message that will be requeued (3.4.5).

        *then* gets the LSN to wait for, and whether the message still is to be requeued.
        """
        queue.contents.delayed[entry] = None

        def loaded(contents: Sequence[bytes | CairnError]) -> None:
            stays = queue.order.still_has(entry) and not entry.is_dequeued
            queue.contents.delayed.pop(entry, None)
            lsn, content = 0, contents[0]
            try:
                if isinstance(content, bytes) and stays:
                    lsn = queue.order.rewrite(entry, combined(content, annotations))
            except (Malformed, CairnError) as error:  # the disk is full, for example: it returns as it was
                about = {"event": "message.not-annotated", "queue": queue.name}
                text = "queue %s: message %d is requeued without the annotations of its receiver: %s"
                log.warning(text, queue.name, entry.message_id, error, extra=about)
            then(lsn, stays)

        if entry.content is not None:
            loaded([entry.complete()])
        else:
            self._core.loader.load_complete([entry.message_id], loaded)

    def rewrite(self, queue: SourceQueue, entry: Entry, content: bytes) -> int:
        """Replace the content of a message of this broker alone: see `Moves.rewrite`."""
        return self._moves.rewrite(queue, entry, content)

    def look_up(
        self, queue: SourceQueue, entry: Entry, reason: str, failures: int, then: Callable[[Found | CairnError], None]
    ) -> None:
        """Look up where *entry* is to be moved for *reason*, and report it to *then*; nothing is moved yet."""
        now_us = self._core.clock.wall_us()

        def placed(found: AddressTarget | Exception, content: bytes) -> None:
            if isinstance(found, CairnError):
                then(found)
            else:
                targets = self._targets(queue, found, content, reason)
                then((targets, shown(queue, entry, failures, reason, targets, content, now_us)))

        if address := queue.policy.dead_letter_address:
            self._find(entry, address, placed, then)
        else:
            then(([], b""))

    def _let_go(self, queue: SourceQueue, entry: Entry, reason: str, then: Then) -> None:
        if entry.is_dequeued or queue.is_deleted:
            then(0)
        else:
            queue.order.dead_letter(entry, REASONS[reason], then)

    def _find(
        self,
        entry: Entry,
        address: str,
        then: Callable[[AddressTarget | Exception, bytes], None],
        unreadable: Callable[[CairnError], None],
    ) -> None:
        """Find the target of *address* for *entry*; *then* gets it and the content, *unreadable* the error of that."""

        def loaded(contents: Sequence[bytes | CairnError]) -> None:
            content = contents[0]
            if isinstance(content, CairnError):
                unreadable(content)
            else:
                self._resolver.find_for_itself(address, lambda found: then(found, content))

        if entry.content is not None:
            loaded([entry.complete()])
        else:
            self._core.loader.load_complete([entry.message_id], loaded)

    def _is_unreadable(self, queue: SourceQueue, entry: Entry, then: Then, error: CairnError) -> None:
        if queue.order.still_has(entry):
            queue.contents.delayed.pop(entry, None)
            queue.contents.put_aside(entry, error)
        then(0)

    def _found(
        self, queue: SourceQueue, entry: Entry, reason: str, then: Then, found: AddressTarget | Exception,
        content: bytes,
    ) -> None:  # fmt: skip
        is_purged = not queue.order.still_has(entry)
        queue.contents.delayed.pop(entry, None)
        if entry.is_dequeued or is_purged:
            then(0)
            return
        try:
            if isinstance(found, CairnError):
                raise found
            targets = self._targets(queue, found, content, reason)
            _check_fan_out(queue, targets)
            moved = self._moves.move(queue, entry, reason, targets, content, lambda: then(0), ignore)
            _count(queue, reason)
            if moved is None:
                return
            lsn = moved
        except CairnError as error:  # the disk is full, or SQL is unavailable: no message may be lost for that
            about = {"event": "dead-letter.delayed", "queue": queue.name}
            reported = queue.name, entry.message_id, reason, error
            log.warning("queue %s: message %d (%s) can't be moved: %s", *reported, extra=about)
            queue.contents.delayed[entry] = None
            self._core.scheduler.after(RETRY_S, self._come_back, queue, entry, queue.contents.give_back)
            lsn = 0
        then(lsn)

    def move(
        self, queue: SourceQueue, entry: Entry, found: AddressTarget, content: bytes, refused: Callable[[], None]
    ) -> int | None:
        """Move *entry* with *content* from the queue to *found*, unchanged; return the LSN to wait for.

        Return None, and do nothing, if no queue gets it there. If a cluster determines that only later, *refused* is
        called, and the message is requeued. Raises `CairnError`, with nothing done.
        """
        targets = self._targets(queue, found, content)
        if not targets:
            return None
        _check_fan_out(queue, targets)
        return self._moves.move(queue, entry, "", targets, content, ignore, refused) or 0

    def _targets(
        self, queue: SourceQueue, found: AddressTarget | Exception, content: bytes, reason: str = ""
    ) -> list[TargetQueue]:
        """Return the queues that get a message which leaves *queue* for that reason."""
        if isinstance(found, Queue):
            targets: list[TargetQueue] = [] if found.is_deleting else [found]
        elif isinstance(found, ExchangeTarget):
            exchanges = self._resolver.nodes.exchanges
            targets = [*way_through(exchanges, found.exchange, found.key or queue.name, content)[1]]
        else:
            about = {"event": "dead-letter.dropped", "queue": queue.name}
            log.warning("queue %s: a message is dropped, as it can't be moved away: %s", queue.name, found, extra=about)
            targets = []
        if targets and reason in death_history.AUTOMATIC:
            return self._without_cycles(queue, targets, content, reason)
        return targets

    def _without_cycles(
        self, queue: SourceQueue, targets: list[TargetQueue], content: bytes, reason: str
    ) -> list[TargetQueue]:
        """Return the *targets* to which the message does not return in an automatic cycle."""
        try:
            deaths = death_history.read(content)
        except Malformed:  # then it has no history, and gets none
            deaths = []
        kept: list[TargetQueue] = []
        for target in targets:
            if not death_history.is_cycle(deaths, queue.name, target.name, reason):
                kept.append(target)
            elif len(self._cycles) < MOST_CYCLES and (queue.name, target.name) not in self._cycles:
                self._cycles.add((queue.name, target.name))
                cause = "it was there before for the same reason, and no client has rejected it since"
                reported = queue.name, reason, target.name, cause
                text = "queue %s: a message (%s) is dropped, not moved to %s: %s (logged once)"
                log.warning(text, *reported, extra={"event": "dead-letter.dropped", "queue": queue.name})
        return kept


def _check_fan_out(queue: SourceQueue, targets: Sequence[TargetQueue]) -> None:
    """Raise `CairnError` if the owner of *queue* may not put one message on that many queues."""
    if queue.account is not None and (cause := queue.account.fan_out_denial(len(targets))):
        raise CairnError(f"queue {queue.name!r}", cause)


def _count(queue: SourceQueue, reason: str) -> None:
    if reason is EXPIRY:
        queue.expired += 1
    else:
        queue.dead_lettered += 1
