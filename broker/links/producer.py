"""The common part of all producers: messages come whole or in pieces, and the limits of queues are applied. Core only.

The kinds in `producers` route messages: to one queue, or through an exchange. `enqueue` stores them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...amqp.codec.primitives import Malformed
from ...amqp.codec.user_id_check import NotTheSender, Walk, condition_of, vouch
from ...channel.ports import ABORTED, MORE, SETTLED, Delivery, Fragment, TerminalEnd
from ..kernel.commit_queue import Shown
from ..kernel.idle_driver import IdleDriver
from ..kernel.memory_budget import ENTRY_BYTES
from ..queues.queue import Queue, shared
from .context import LinkContext
from .enqueue import Enqueuer, Queues
from .partial_message import PartialMessage


class Producer(Enqueuer, IdleDriver):
    """The driver of a channel on which a client sends: whole messages in batches, long ones piece by piece."""

    def __init__(self, links: LinkContext, terminal: TerminalEnd, user: str) -> None:
        super().__init__(links, terminal, user)
        self._user = user
        self.vouches = links.vouches
        """Messages may not say that they are from somebody else."""
        self._partial: PartialMessage | None = None

    def receive(self, fragments: Sequence[Fragment]) -> None:
        whole: list[Fragment] = []
        for fragment in fragments:
            if not fragment[2] & (MORE | ABORTED) and self._partial is None:
                whole.append(fragment)
                continue
            if whole:
                self._take(whole)
                whole = []
            self._grow(*fragment)
        if whole:
            self._take(whole)

    def receive_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        self._transaction = self._links.transactions.find(connection, txn_id)
        self.receive(fragments)
        self._transaction = None

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._is_closed = True
        self._drop_growing()
        self._store_credit.forget(self.terminal)
        for gate in self._blocked_by:
            gate.no_credit(self.terminal)

    def _take(self, fragments: list[Fragment]) -> None:
        """Whole messages came: those that say they are from somebody else are refused."""
        if self.vouches:
            fragments = [fragment for fragment in fragments if self._is_from_user(fragment)]
        if fragments:
            self._accept(fragments)

    def _is_from_user(self, fragment: Fragment) -> bool:
        try:
            vouch(fragment[1], self._user)
        except (NotTheSender, Malformed) as error:
            self._reject((fragment[0],), 1, *condition_of(error))
            return False
        return True

    # ---- for the kinds --------------------------------------------------------------------------------------------

    def _accept(self, fragments: list[Fragment]) -> None:
        """Whole messages came."""
        raise NotImplementedError

    def _queues_of(self, start: bytes) -> Queues | None:
        """Return the targets of a long message that begins with *start*; None if only the complete message tells."""
        raise NotImplementedError

    def _finish_unwanted(self, delivery: Delivery, flags: int) -> None:
        """A long message that goes nowhere is complete."""
        raise NotImplementedError

    def _put(self, queues: Queues, fragments: Sequence[Fragment]) -> None:
        """Whole messages for the same queues, one or more."""
        for queue in queues:
            if queue.limits is not None:
                self._put_gated(queues, fragments)
                return
        self._record(queues, fragments)

    # ---- gates ----------------------------------------------------------------------------------------------------

    def _put_gated(self, queues: Queues, fragments: Sequence[Fragment]) -> None:
        """Enqueue *fragments*, each to those of *queues* whose limits admit it."""
        for fragment in fragments:
            wanted: list[Queue] = []
            for queue in queues:
                verdict = self._look_at(queue, fragment[1], len(fragment[1]))
                if verdict is None:
                    continue
                if verdict:
                    self._refuse(queues, (fragment[0],), verdict)
                    break
                wanted.append(queue)
            else:
                if wanted:
                    self._stage(wanted, fragment[1], len(fragment[1]))
                    self._record(tuple(wanted), (fragment,))
                else:
                    self._put_nowhere((fragment,))

    def _look_at(self, queue: Queue, start: bytes, size_bytes: int) -> str | None:
        """Return the verdict of the queue's limits on a message that begins with *start*: see `QueueLimits.look_at`."""
        if queue.limits is None:
            return ""
        staged = None if self._transaction is None else self._transaction.staged_at(queue.limits)
        return queue.limits.look_at(start, size_bytes, staged)

    def _stage(self, queues: Sequence[Queue], start: bytes, size_bytes: int) -> None:
        """Gates have let it in: if that is for a transaction, it counts at them until that is over."""
        if self._transaction is not None:
            for queue in queues:
                if queue.limits is not None:
                    self._transaction.stage(queue.limits, start, size_bytes)

    # ---- messages that arrive in pieces ---------------------------------------------------------------------------

    def _grow(self, delivery: Delivery, data: bytes, flags: int) -> None:
        growing = self._partial
        if flags & ABORTED:
            self._drop_growing()
            self.terminal.release((delivery,), 1)
            return
        if growing is None:
            growing = self._partial = PartialMessage(self._core, Walk(self._user) if self.vouches else None)
            if self._transaction is not None:
                growing.transaction = self._transaction
                growing.transaction.partial += 1
        if growing.walk is not None:
            growing.walk_on(growing.walk, data, last=not flags & MORE)
        if growing.wrong is None:
            growing.add(data)
        if not flags & MORE:
            self._partial = None
            if growing.transaction is not None:
                growing.transaction.partial -= 1
            if growing.wrong is not None:
                self._reject((delivery,), 1, *growing.wrong)
            elif growing.queues is not None:
                self._finish(growing, tuple(growing.queues), delivery, flags)
            elif growing.full:
                self._refuse((), (delivery,), growing.full)
            else:
                content = growing.whole()
                growing.drop()
                self._accept([(delivery, content, flags)])
        elif growing.has_piece():
            for queue in growing.queues or ():
                if queue.account is not None:
                    self._throttle(queue.account)
            if growing.queues is None:
                queues = self._queues_of(growing.whole())
                if queues is None or shared(queues):  # these take it whole
                    growing.homeless = True
                    return
                if why := self._account.fan_out_denial(len(queues)):
                    growing.homeless = True
                    growing.refuse(why)
                    return
                growing.settle_on(queues)
            growing.end_piece()
            for queue in growing.queues or ():
                if not growing.full and queue.limits is not None and (why := queue.limits.too_long(growing.size_bytes)):
                    growing.refuse(why)

    def _drop_growing(self) -> None:
        growing, self._partial = self._partial, None
        if growing is not None:
            growing.drop()
            if growing.transaction is not None:
                growing.transaction.partial -= 1

    def _finish(self, growing: PartialMessage, queues: Queues, delivery: Delivery, flags: int) -> None:
        if growing.malformed:
            self._reject((delivery,), 1, "amqp:decode-error", growing.malformed)
            return
        if not queues:
            growing.drop()
            self._finish_unwanted(delivery, flags)
            return
        if not self._pass_gates(growing, queues, delivery, flags):
            return
        if self._transaction is not None:
            growing.finish_in(self._transaction, self._core.clock.wall_us())
            if growing.full:
                self._refuse(queues, (delivery,), growing.full)
            else:
                self._answer_in(self._transaction, queues, ((delivery, b"", flags),))
            return
        for queue in queues:
            if queue.account is not None:
                self._throttle(queue.account)
        self.is_transient = growing.is_in_memory
        lsn, shown = self._put_grown(growing, self._core.clock.wall_us())
        if self.is_transient and shown:  # in the middle it is not held, or what there is would never leave the memory
            self._share_memory(queues, growing.size_bytes + ENTRY_BYTES)
        settled = bool(flags & SETTLED)
        if growing.full:
            self._refuse(queues, (delivery,), growing.full)
        elif queues and not shown:
            self._reject_gone((delivery,), f"the queue {queues[0].name!r}")
        else:
            confirmed, unwanted = ([], [delivery]) if settled else ([delivery], [])
            self._core.commits.show_long(lsn, shown, self._answer, queues, confirmed, unwanted)

    def _pass_gates(self, growing: PartialMessage, queues: Queues, delivery: Delivery, flags: int) -> bool:
        """Return whether any queue admits the complete long message; if none does, the message has been answered."""
        if growing.full or all(queue.limits is None for queue in queues):
            return True
        wanted: list[Queue] = []
        for queue in queues:
            verdict = self._look_at(queue, growing.beginning, growing.size_bytes)
            if verdict:
                growing.drop()
                self._refuse(queues, (delivery,), verdict)
                return False
            if verdict is not None:
                wanted.append(queue)
        if not wanted:
            growing.drop()
            self._put_nowhere(((delivery, b"", flags),))
            return False
        growing.unwanted = {*queues}.difference(wanted)
        self._stage(wanted, growing.beginning, growing.size_bytes)
        return True

    def _put_grown(self, growing: PartialMessage, now_us: int) -> tuple[int, Shown]:
        """A long message is complete: the LSN to wait for, and what is on which queue then."""
        return growing.finish(self._store.enqueue, now_us)
