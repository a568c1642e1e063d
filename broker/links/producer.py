"""Producers: drivers of links on which a client sends, complete messages in batches and long ones in pieces. Core only.

A producer receives messages, its route finds their queues, and its `enqueue.Enqueuer` puts them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ...amqp.codec.primitives import Malformed
from ...amqp.codec.user_id_check import NotTheSender, Walk, condition_of, vouch
from ...amqp.ports import ABORTED, MORE, SETTLED, Delivery, DriverEnd, Fragment
from ..kernel.idle_driver import IdleDriver
from ..kernel.memory_budget import ENTRY_BYTES
from ..queues.ends import shared
from ..queues.queue import Queue
from .enqueue import Enqueuer, Queues
from .partial_message import PartialMessage


class Route(Protocol):
    """The way of a producer's messages to their queues."""

    def send(self, fragments: Sequence[Fragment]) -> None:
        """Enqueue complete messages, now or in a later step, or reject them."""

    def queues_of(self, start: bytes) -> Queues | None:
        """Return the targets of a long message that begins with *start*; None if the complete message is needed."""

    def finish_unrouted(self, delivery: Delivery, flags: int) -> None:
        """Answer a complete long message without target queues."""

    def is_behind(self) -> bool:
        """Return whether complete messages that are sent now would be enqueued in a later step."""

    def close(self, driver: DriverEnd) -> None:
        """Leave the target, as the link of *driver* is closed."""


class QueueRoute:
    """The route to one queue."""

    def __init__(self, enqueuer: Enqueuer, queue: Queue) -> None:
        self._enqueuer = enqueuer
        self._queue = queue
        self._queues = (queue,)
        queue.producers[enqueuer] = None

    def send(self, fragments: Sequence[Fragment]) -> None:
        if self._queue.is_deleting:
            self._enqueuer.reject_deleted([fragment[0] for fragment in fragments], f"the queue {self._queue.name!r}")
        else:
            self._enqueuer.enqueue(self._queues, fragments)

    def queues_of(self, start: bytes) -> Queues | None:
        return None if self._queue.is_deleting else self._queues

    def finish_unrouted(self, delivery: Delivery, flags: int) -> None:
        raise AssertionError("the queue is the target of each message")

    def is_behind(self) -> bool:
        return False

    def close(self, driver: DriverEnd) -> None:
        self._queue.producers.pop(self._enqueuer, None)
        self._enqueuer.links.sender_closed(driver, self._queue)


class Producer(IdleDriver):
    """The driver of a link on which a client sends."""

    def __init__(self, enqueuer: Enqueuer, route: Route) -> None:
        links, attach = enqueuer.links, enqueuer.attach
        self.terminal = enqueuer.terminal
        self.enqueuer = enqueuer
        self._route = route
        self._transactions = links.transactions
        self._core = links.core
        self._user = attach.user
        self._vouches = links.vouches and not attach.relayed
        """Messages must not claim to be from another user."""
        self._partial: PartialMessage | None = None

    def receive(self, fragments: Sequence[Fragment]) -> None:
        if self._partial is not None or self._vouches:
            self._receive_mixed(fragments)
            return
        for fragment in fragments:
            if fragment[2] & (MORE | ABORTED):
                self._receive_mixed(fragments)
                return
        self._route.send(fragments)

    def receive_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        self.enqueuer.transaction = self._transactions.find(connection, txn_id)
        self.receive(fragments)
        self.enqueuer.transaction = None

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._drop_partial()
        self.enqueuer.close()
        self._route.close(self)

    def _receive_mixed(self, fragments: Sequence[Fragment]) -> None:
        """Receive complete messages and pieces of long ones; check the senders that they name."""
        complete: list[Fragment] = []
        for fragment in fragments:
            if not fragment[2] & (MORE | ABORTED) and self._partial is None:
                if not self._vouches or self._is_from_user(fragment):
                    complete.append(fragment)
                continue
            if complete:
                self._route.send(complete)
                complete = []
            self._receive_piece(*fragment)
        if complete:
            self._route.send(complete)

    def _is_from_user(self, fragment: Fragment) -> bool:
        """Return whether a message may be from the user of the link; else reject it."""
        try:
            vouch(fragment[1], self._user)
        except (NotTheSender, Malformed) as error:
            self.enqueuer.reject((fragment[0],), 1, *condition_of(error))
            return False
        return True

    def _receive_piece(self, delivery: Delivery, data: bytes, flags: int) -> None:
        if flags & ABORTED:
            self._drop_partial()
            self.terminal.release((delivery,), 1)
            return
        partial = self._partial
        if partial is None:
            partial = self._partial = PartialMessage(self._core, Walk(self._user) if self._vouches else None)
            partial.transaction = self.enqueuer.transaction
            if partial.transaction is not None:
                partial.transaction.partial += 1
        if partial.walk is not None:
            partial.walk_on(partial.walk, data, last=not flags & MORE)
        if partial.wrong is None:
            partial.add(data)
        if not flags & MORE:
            self._partial = None
            if partial.transaction is not None:
                partial.transaction.partial -= 1
                if partial.transaction is not self.enqueuer.transaction:
                    partial.transaction.fail("it was discharged before a message in it had arrived completely")
            self._complete(partial, delivery, flags)
        elif partial.has_piece():
            self._end_piece(partial)

    def _end_piece(self, partial: PartialMessage) -> None:
        """Store the piece that has arrived, if the target queues are known and admit the message."""
        self.enqueuer.throttle_owners(partial.queues or ())
        if partial.queues is None:
            queues = self._route.queues_of(partial.complete())
            if queues is None or shared(queues):  # these get it when it is complete
                partial.homeless = True
                return
            if reason := self.enqueuer.account.fan_out_denial(len(queues)):
                partial.homeless = True
                partial.refuse(reason)
                return
            partial.settle_on(queues)
        partial.end_piece()
        for queue in partial.queues or ():
            if not partial.full and queue.limits is not None and (reason := queue.limits.too_long(partial.size_bytes)):
                partial.refuse(reason)

    def _complete(self, partial: PartialMessage, delivery: Delivery, flags: int) -> None:
        """Enqueue a complete long message, or reject it."""
        enqueuer = self.enqueuer
        if partial.wrong is not None:
            enqueuer.reject((delivery,), 1, *partial.wrong)
        elif partial.queues is None and partial.full:
            enqueuer.refuse((), (delivery,), partial.full)
        elif partial.queues is None:
            content = partial.complete()
            partial.drop()
            self._route.send([(delivery, content, flags)])
        elif not partial.queues:
            partial.drop()
            self._route.finish_unrouted(delivery, flags)
        else:
            queues = tuple(partial.queues)
            if self._is_admitted(partial, queues, delivery, flags):
                self._finish(partial, queues, delivery, flags)

    def _is_admitted(self, partial: PartialMessage, queues: Queues, delivery: Delivery, flags: int) -> bool:
        """Return whether any queue admits the complete long message; if none does, the message has been answered."""
        if partial.full or all(queue.limits is None for queue in queues):
            return True
        admitted = self.enqueuer.admitted(queues, delivery, partial.beginning, partial.size_bytes)
        if not admitted:
            partial.drop()
            if admitted is not None:
                self.enqueuer.accept_unrouted(((delivery, b"", flags),))
            return False
        partial.unwanted = {*queues}.difference(admitted)
        self.enqueuer.stage(admitted, partial.beginning, partial.size_bytes)
        return True

    def _finish(self, partial: PartialMessage, queues: Queues, delivery: Delivery, flags: int) -> None:
        """Enqueue a complete long message on the queues that admit it."""
        enqueuer, commits = self.enqueuer, self._core.commits
        now_us = self._core.clock.wall_us()
        if enqueuer.transaction is not None:
            partial.finish_in(enqueuer.transaction, now_us)
            if partial.full:
                enqueuer.refuse(queues, (delivery,), partial.full)
            else:
                enqueuer.answer_in(enqueuer.transaction, queues, ((delivery, b"", flags),))
            return
        enqueuer.throttle_owners(queues)
        enqueuer.is_transient = partial.is_in_memory
        lsn, shown = enqueuer.finish(partial, now_us)
        if enqueuer.is_transient and shown:  # not earlier, or its content would never leave the memory
            enqueuer.share_memory(queues, partial.size_bytes + ENTRY_BYTES)
        if partial.full:
            enqueuer.refuse(queues, (delivery,), partial.full)
        elif not shown:
            enqueuer.reject_deleted((delivery,), f"the queue {queues[0].name!r}")
        else:
            confirmed, unwanted = ([], [delivery]) if flags & SETTLED else ([delivery], [])
            commits.show_long(lsn, shown, enqueuer.answer, queues, confirmed, unwanted)

    def _drop_partial(self) -> None:
        partial, self._partial = self._partial, None
        if partial is not None:
            partial.drop()
            if partial.transaction is not None:
                partial.transaction.partial -= 1
