"""Enqueuing of a producer's messages: limits, storage, visibility when durable, then the answer. Core only.

`producer` receives the messages of a link, and its route decides where they go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from ...amqp.codec import header
from ...amqp.codec.primitives import Malformed
from ...amqp.ports import SETTLED, Delivery, Fragment, Open, TerminalEnd
from ...base.callbacks import ignore
from ..kernel.commit_queue import Shown
from ..kernel.memory_budget import ENTRY_BYTES, NO_MEMORY
from ..messages.message_times import stamped, tells_times
from ..nodes.replication_port import Kept
from ..queues.ends import TargetQueue, own, shared
from ..transactions.transaction import ClientTransaction
from ..users.user_accounts import UserAccount, UserAccounts
from .context import LinkContext
from .partial_message import PartialMessage

Queues = tuple[TargetQueue, ...]
"""The target queues of a message: none, one or several."""


class MessageWriter(Protocol):
    """Stores the messages of a link together with something else."""

    def write(self, queues: Queues, contents: Sequence[bytes], now_us: int) -> tuple[Sequence[int], int]:
        """Store messages, each on all of *queues*, which are durable; return their IDs and the LSN to wait for."""

    def finish(self, partial: PartialMessage, now_us: int) -> tuple[int, Shown]:
        """Enqueue a complete long message that has arrived; return the LSN to wait for, and its entries."""


class Checked(NamedTuple):
    """The messages of a batch that may be enqueued."""

    kept: list[tuple[bytes, bool]]
    """The content of each message, and whether it is stored."""
    contents: list[bytes]
    """The contents that are stored."""
    timed: bool
    """True if some may have times, such as a time to live."""
    transient_bytes: int
    confirmed: list[Delivery]
    unwanted: list[Delivery]
    """Deliveries that were sent settled."""


class _Room:
    """The room for a batch of messages in the store, in the memory, and in the quotas of the owners of its queues."""

    def __init__(self, users: UserAccounts, queues: Queues, full: str) -> None:
        self._users = users
        self._queues = queues
        self._full = full
        self._some_do_not_last = any(not queue.queue_id for queue in queues)
        self._spare_bytes: int | None = None
        self.transient_bytes = 0
        """The memory of messages that can't be read back, or not from all queues."""

    def denial(self, size_bytes: int, stored: bool) -> str:
        """Return why there is no room for one more message; empty if there is, which it takes."""
        if stored and self._full:
            return f"the store is full: {self._full}"
        if stored and (excess := self._excess(size_bytes)):
            return excess
        if not stored or self._some_do_not_last:
            if self._spare_bytes is None:
                self._spare_bytes = min([queue.memory.spare_bytes() for queue in self._queues])
            self._spare_bytes -= size_bytes + ENTRY_BYTES
            if self._spare_bytes < 0:
                return NO_MEMORY
            self.transient_bytes += size_bytes + ENTRY_BYTES
        return ""

    def _excess(self, size_bytes: int) -> str:
        """Return why the quota of an owner has no room for a message of that size; empty if it has."""
        for queue in self._queues:
            account = queue.account if queue.queue_id else None
            if account is not None and (excess := self._users.excess(account, size_bytes)):
                return excess
        return ""


class Enqueuer:
    """Puts messages of one link on queues, and answers its sender."""

    def __init__(self, links: LinkContext, terminal: TerminalEnd, attach: Open) -> None:
        self.terminal = terminal
        self.links = links
        self.attach = attach
        self._core = links.core
        self._store = links.core.store
        self._store_credit = links.credit
        self._members = links.members
        self._shares_queues = links.members.shares_queues
        self._holds_back_when_full = not links.members.is_alone
        """A full disk here rejects no message to a replicated queue: the cluster keeps it waiting."""
        self.transaction: ClientTransaction | None = None
        """The transaction of the messages that are being enqueued."""
        self.account = links.core.users.of(attach.user)
        self.is_closed = False
        """True if the link is closed: it gets no credit, and can't be held."""
        self.is_transient = True
        """True if the latest message needs memory, and before the first message."""
        self.is_accepted = False
        """True if the latest message was accepted, and not rejected."""
        self.writer: MessageWriter | None = None
        """Stores the messages; None if they are stored alone."""

    def close(self) -> None:
        """Forget the credit that is withheld from the link, which is closed."""
        self.is_closed = True
        self._core.users.throttles.link_closed(self.terminal)

    # ---- limits of queues -----------------------------------------------------------------------------------------

    def _enqueue_limited(self, queues: Queues, fragments: Sequence[Fragment]) -> None:
        """Enqueue *fragments*, each to those of *queues* whose limits admit it."""
        for fragment in fragments:
            content = fragment[1]
            admitted = self.admitted(queues, fragment[0], content, len(content))
            if admitted:
                self.stage(admitted, content, len(content))
                self.enqueue(admitted, (fragment,), is_admitted=True)
            elif admitted is not None:
                self.accept_unrouted((fragment,))

    def admitted(self, queues: Queues, delivery: Delivery, start: bytes, size_bytes: int) -> Queues | None:
        """Return those of *queues* whose limits admit a message that begins with *start*.

        Return None if a limit rejects it: then the delivery is refused.
        """
        wanted: list[TargetQueue] = []
        for queue in queues:
            verdict: str | None = ""
            if queue.limits is not None:
                staged = None if self.transaction is None else self.transaction.staging.staged.get(queue.limits)
                verdict = queue.limits.look_at(start, size_bytes, staged)
            if verdict:
                self.refuse(queues, (delivery,), verdict)
                return None
            if verdict is not None:
                wanted.append(queue)
        return tuple(wanted)

    def stage(self, queues: Queues, start: bytes, size_bytes: int) -> None:
        """Count an admitted message at the limits of *queues* until its transaction, if it has one, is over."""
        if self.transaction is not None:
            for queue in queues:
                if queue.limits is not None:
                    self.transaction.staging.stage(queue.limits, start, size_bytes)

    # ---- complete messages ----------------------------------------------------------------------------------------

    def enqueue(self, queues: Queues, fragments: Sequence[Fragment], *, is_admitted: bool = False) -> None:
        """Enqueue complete messages, and confirm them once all of them are durable.

        *is_admitted*: the limits of *queues* admit them.
        """
        for queue in queues:
            if queue.limits is not None and not is_admitted:
                self._enqueue_limited(queues, fragments)
                return
        self.is_accepted = True
        if self.transaction is not None:
            self.transaction.work.stage(queues, fragments)
            self.answer_in(self.transaction, queues, fragments)
            return
        lasting, full = queues, ""
        if len(queues) == 1 and queues[0].queue_id and not self._holds_back_when_full:
            full = self._store.full()
        else:
            lasting = tuple([queue for queue in queues if queue.queue_id])
            full = self._store_full(lasting, fragments)
        now_us = self._core.clock.wall_us()
        checked = self._check(queues, lasting, fragments, now_us, full)
        if not checked.kept:
            return
        self.is_transient = checked.transient_bytes > 0
        if checked.transient_bytes:
            self.share_memory(queues, checked.transient_bytes)
        if self._shares_queues and (ordered := shared(queues)):
            self._enqueue_ordered(ordered, queues, checked, now_us)
        else:
            self._keep(queues, lasting, checked, now_us, self.answer, queues, checked.confirmed, checked.unwanted)

    def _check(self, queues: Queues, lasting: Queues, fragments: Sequence[Fragment], now_us: int, full: str) -> Checked:
        """Return the messages that may be enqueued, as they are stored; the others are refused.

        *lasting*: those of *queues* that are durable; *full*: why the store has no room, or empty.
        """
        expires = False
        has_quota = False
        for queue in queues:
            if queue.policy.message_ttl_ms:
                expires = True
            if queue.account is not None:
                has_quota |= self.throttle(queue.account)
        kept: list[tuple[bytes, bool]] = []
        contents: list[bytes] = []
        timed = False
        room: _Room | None = None
        is_limited = full or has_quota or len(lasting) < len(queues)
        confirmed: list[Delivery] = []
        unwanted: list[Delivery] = []
        for delivery, content, flags in fragments:
            try:
                head = header.parse(content)
                stored = head.durable and bool(lasting)
                # `may_have_times`, without a call
                if expires or head.ttl_ms is not None or (head.annotated and tells_times(content, head)):
                    content = stamped(content, head, now_us, always=expires)
                    timed = True
            except Malformed as error:
                self.reject((delivery,), 1, "amqp:decode-error", str(error))
                continue
            if not stored or is_limited:
                room = room or _Room(self._core.users, queues, full)
                if denial := room.denial(len(content), stored):
                    self.refuse(queues, (delivery,), denial)
                    continue
            kept.append((content, stored))
            if stored:
                contents.append(content)
            (unwanted if flags & SETTLED else confirmed).append(delivery)
        transient_bytes = 0 if room is None else room.transient_bytes
        return Checked(kept, contents, timed, transient_bytes, confirmed, unwanted)

    def _store_full(self, lasting: Queues, fragments: Sequence[Fragment]) -> str:
        """Return why the store has no room for *fragments* on durable queues; empty if it has."""
        here = lasting if not self._holds_back_when_full else own(lasting)
        if len(here) == 1:
            return self._store.full()
        if not here:
            return ""
        return self._store.full(sum([len(content) for _, content, _ in fragments]), len(fragments) * len(here))

    def _enqueue_ordered(self, ordered: Sequence[TargetQueue], queues: Queues, checked: Checked, now_us: int) -> None:
        """Have the cluster order messages on those of *queues* that all members have, and keep them on the others."""
        answer: Callable[[], None] = partial(
            self._answer_ordered, perf_counter(), queues, checked.confirmed, checked.unwanted
        )
        removed = f"the queue {ordered[0].name!r}"
        refused: Callable[[], None] = partial(self.reject_deleted, [*checked.confirmed, *checked.unwanted], removed)
        others = tuple(own(queues))
        if others:  # the last of the two answers
            answers: list[Callable[[], None]] = [answer, ignore]
            answer = refused = lambda: answers.pop()()
            lasting = tuple([queue for queue in others if queue.queue_id])
            self._keep(others, lasting, checked, now_us, answer)
        self._members.enqueue(ordered, Kept(checked.kept, checked.timed), answer, refused)

    def _keep(
        self, queues: Queues, lasting: Queues, checked: Checked, now_us: int, then: Callable[..., None], *args: Any
    ) -> None:
        """Store messages on those of *queues* that are *lasting*, show them when they are durable, and do *then*."""
        contents = checked.contents
        ids: Sequence[int] = ()
        lsn = 0
        if contents and lasting:
            if self.writer is not None:
                ids, lsn = self.writer.write(lasting, contents, now_us)
            elif len(contents) == 1:
                message_id, lsn = self._store.put(lasting[0].queue_id, contents[0], now_us)
                ids = (message_id,)
            else:
                ids, lsn = self._store.put_all(lasting[0].queue_id, contents, now_us)
            for queue in lasting:
                if self.writer is None and queue is not lasting[0]:
                    for message_id in ids:
                        lsn = self._store.enqueue(message_id, queue.queue_id, now_us)
                if queue.account is not None:
                    self._core.users.stored(queue.account, queue)
        shown = []
        for queue in queues:
            shown.append((queue, queue.new_entries(checked.kept, ids, checked.timed)))
        self._core.commits.show(lsn, shown, then, *args)

    def finish(self, partial: PartialMessage, now_us: int) -> tuple[int, Shown]:
        """Enqueue a complete long message; return the LSN to wait for, and its entries."""
        if self.writer is not None:
            return self.writer.finish(partial, now_us)
        return partial.finish(self._store.enqueue, now_us)

    def _answer_ordered(self, from_s: float, *arguments: Any) -> None:
        self._core.latencies.settle_s.observe(perf_counter() - from_s)
        self.answer(*arguments)

    def answer(self, queues: Queues, confirmed: list[Delivery], unwanted: list[Delivery]) -> None:
        """Answer deliveries that are stored, or need no storing."""
        if confirmed:
            self.terminal.confirm(confirmed, self._credit(queues, len(confirmed)))
        if unwanted:
            self.terminal.release(unwanted, self._credit(queues, len(unwanted)))

    def answer_in(self, transaction: ClientTransaction, queues: Queues, fragments: Sequence[Fragment]) -> None:
        """Answer deliveries that are in *transaction*, unless it has failed."""
        wanted = [delivery for delivery, _, flags in fragments if not flags & SETTLED]
        unwanted = [delivery for delivery, _, flags in fragments if flags & SETTLED]
        transaction.answer(self.terminal, wanted, unwanted, self._credit(queues, len(fragments)))

    def share_memory(self, queues: Sequence[TargetQueue], size_bytes: int) -> None:
        """Hold the link if transient messages of that size fill the share of one of *queues*, or of an owner."""
        owners: set[UserAccount | None] = set()
        """The owners of earlier queues: all queues of an owner have one share."""
        for queue in queues:
            if queue.account in owners:
                continue
            if queue.account is not None:
                owners.add(queue.account)
            if queue.is_over_share(size_bytes) and not self.is_closed:
                self._core.memory.throttle(queue).hold((self.terminal,))

    def throttle(self, account: UserAccount) -> bool:
        """Hold the link if *account*, of a queue's owner, is blocked; return whether it may lack room for a message."""
        if account.is_blocked:
            if not self.is_closed:
                account.blocked.hold((self.terminal,))
            return True
        return account.quota.max_durable_bytes > 0

    def throttle_owners(self, queues: Sequence[TargetQueue]) -> None:
        """Hold the link if an owner of *queues* is blocked."""
        for queue in queues:
            if queue.account is not None:
                self.throttle(queue.account)

    def credit(self, queues: Sequence[TargetQueue], wanted: int, *, replicated: bool = False) -> int:
        """Return the initial credit of a sender, at most *wanted*; *queues* is empty if each message names its own."""
        if not queues:
            wanted = self._core.users.pace(self.account, self.terminal, wanted)
            return self._store_credit.take(self.terminal, wanted, replicated=replicated)
        return self._credit(queues, wanted)

    def _credit(self, queues: Sequence[TargetQueue], wanted: int) -> int:
        """Return the credit that the client gets back for *wanted* messages to *queues*."""
        if self.is_closed:
            return 0
        if self.account.pace is not None:
            wanted = self._core.users.pace(self.account, self.terminal, wanted)
        lasts = False
        for queue in queues:
            if queue.queue_id:
                lasts = True
            if queue.account is not None and queue.account.is_blocked and wanted:
                queue.account.blocked.withhold(self.terminal, wanted)
                return 0
            if queue.memory_throttle is not None and self.is_transient and wanted:
                queue.memory_throttle.withhold(self.terminal, wanted)
                return 0
            if queue.limits is not None and wanted:
                wanted = queue.limits.credit(self.terminal, wanted)
        if lasts and wanted:
            replicated = self._shares_queues and bool(shared(queues))
            if self._store.full() or (replicated and self._members.holds):  # `take`, without a call
                return self._store_credit.withhold(self.terminal, wanted)
        return wanted

    # ---- messages that are not stored -----------------------------------------------------------------------------

    def accept_unrouted(self, fragments: Sequence[Fragment]) -> None:
        """Accept messages that no queue wants, as soon as all earlier ones are answered."""
        self.is_accepted = True
        if self.transaction is not None:
            self.answer_in(self.transaction, (), fragments)
            return
        confirmed = [delivery for delivery, _, flags in fragments if not flags & SETTLED]
        unwanted = [delivery for delivery, _, flags in fragments if flags & SETTLED]
        self._core.commits.when_durable(0, self.answer, (), confirmed, unwanted)

    def reject_deleted(self, deliveries: Sequence[Delivery], what: str) -> None:
        """Reject deliveries whose target was deleted."""
        self.reject(deliveries, len(deliveries), "amqp:not-found", f"{what} was deleted")

    def reject(self, deliveries: Sequence[Delivery], credit: int, condition: str, reason: str) -> None:
        """Reject deliveries with an error; in a transaction they make it fail."""
        self.is_accepted = False
        if self.transaction is not None:
            self.transaction.refuse(self.terminal, deliveries, credit, condition, reason)
        else:
            self.terminal.reject(deliveries, credit, condition, reason)

    def refuse(self, queues: Queues, deliveries: Sequence[Delivery], reason: str) -> None:
        """Reject deliveries for which a resource has no room."""
        credit = self._credit(queues, len(deliveries))
        self.reject(deliveries, credit, "amqp:resource-limit-exceeded", reason)
