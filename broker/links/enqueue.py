"""The way of messages from a producer into its queues: store, show when durable, then answer. Core only.

`producer` decides which messages are let in, and `producers` where they go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...amqp.codec import header
from ...amqp.codec.primitives import Malformed
from ...channel.ports import SETTLED, Delivery, Fragment, TerminalEnd
from ..kernel.memory_budget import ENTRY_BYTES, NO_MEMORY
from ..messages.message_times import stamped, tells_times
from ..nodes.replication_port import Kept
from ..queues.entries import entries_of
from ..queues.limits import QueueLimits
from ..queues.queue import Queue, own, shared
from .context import LinkContext

if TYPE_CHECKING:
    from ..transactions.transaction import Transaction
    from ..users.user_accounts import UserAccount

Queues = tuple[Queue, ...]
"""The target queues of a message: none, one or several."""


class Enqueuer:
    """A channel on which a client sends: passes its messages into queues, and the answers back."""

    def __init__(self, links: LinkContext, terminal: TerminalEnd, user: str) -> None:
        self.terminal = terminal
        self._links = links
        self._core = links.core
        self._store = links.core.store
        self._store_credit = links.credit
        self._members = links.members
        self._shares_queues = links.members.shares_queues
        self._holds_back_when_full = not links.members.is_alone
        """A full disk here rejects no message to a replicated queue: the cluster keeps it waiting."""
        self._transaction: Transaction | None = None
        """The one that what is being looked at is for."""
        self._account = links.core.users.of(user)
        self._is_closed = False
        """True if the link is closed: it gets no credit, and can't be held."""
        self.is_transient = True
        """True if the latest message needs memory, and before the first message."""
        self._blocked_by: dict[QueueLimits, None] = {}
        """Gates that withhold credit of this channel, or did."""

    def _record(self, queues: Queues, fragments: Sequence[Fragment]) -> None:
        """Record whole messages, and confirm and show them once all of them are durable."""
        if self._transaction is not None:
            self._transaction.stage_all(queues, fragments)
            self._answer_in(self._transaction, queues, fragments)
            return
        store, alone = self._store, len(queues) == 1
        now_us = self._core.clock.wall_us()
        lasting = queues if alone and queues[0].queue_id else tuple([queue for queue in queues if queue.queue_id])
        full = ""
        here = lasting if not self._holds_back_when_full else own(lasting)
        if len(here) == 1:
            full = store.full()
        elif here:
            full = store.full(sum([len(content) for _, content, _ in fragments]), len(fragments) * len(here))
        transient_bytes = 0
        some_do_not_last = len(lasting) < len(queues)
        spare_bytes = queues[0].spare_bytes() if alone else min([queue.spare_bytes() for queue in queues])
        lives = any(queue.policy.message_ttl_ms for queue in queues)
        timed = False
        kept: list[tuple[bytes, bool]] = []
        confirmed: list[Delivery] = []
        unwanted: list[Delivery] = []
        turned_away: list[Delivery] = []
        excess_of = None
        for queue in queues:
            if queue.account is not None:
                excess_of = self._throttle(queue.account)
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
            if stored and excess_of is not None and (excess := self._excess(queues, len(content))):
                self._refuse(queues, (delivery,), excess)
                continue
            if not stored or some_do_not_last:
                spare_bytes -= len(content) + ENTRY_BYTES
                if spare_bytes < 0:
                    self._refuse(queues, (delivery,), NO_MEMORY)
                    continue
                transient_bytes += len(content) + ENTRY_BYTES
            kept.append((content, stored))
            if flags & SETTLED:
                unwanted.append(delivery)
            else:
                confirmed.append(delivery)
        if turned_away:
            self._refuse(queues, turned_away, f"the store is full: {full}")
        if not kept:
            return
        self.is_transient = transient_bytes > 0
        if transient_bytes:
            self._share_memory(queues, transient_bytes)
        if self._shares_queues and (ordered := shared(queues)):
            answer: Callable[[], None] = partial(self._answer, queues, confirmed, unwanted)
            gone = f"the queue {ordered[0].name!r}"
            refused: Callable[[], None] = partial(self._reject_gone, [*confirmed, *unwanted], gone)
            others = tuple(own(queues))
            if others:  # the last of the two to be done tells
                answer = refused = once_more(answer)
                self._keep(others, kept, timed, now_us, answer)
            self._members.enqueue(ordered, Kept(kept, timed), answer, refused)
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
        self._core.commits.show(lsn, shown, then, *args)

    def _write(self, queues: Queues, contents: list[bytes], now_us: int) -> tuple[Sequence[int], int]:
        """Store messages, each on all of *queues*, which are durable: their ids, and the LSN to wait for."""
        store = self._store
        ids, lsn = store.put_all(queues[0].queue_id, contents, now_us)
        for queue in queues[1:]:
            for message_id in ids:
                lsn = store.enqueue(message_id, queue.queue_id, now_us)
        for queue in queues:
            if queue.account is not None:
                self._core.users.stored(queue.account, queue)
        return ids, lsn

    def _answer(self, queues: Queues, confirmed: list[Delivery], unwanted: list[Delivery]) -> None:
        """Answer deliveries that are stored, or need no storing."""
        if confirmed:
            self.terminal.confirm(confirmed, self._credit(queues, len(confirmed)))
        if unwanted:
            self.terminal.release(unwanted, self._credit(queues, len(unwanted)))

    def _answer_in(self, transaction: Transaction, queues: Queues, fragments: Sequence[Fragment]) -> None:
        """Answer deliveries that are in *transaction*, unless it has failed."""
        wanted = [delivery for delivery, _, flags in fragments if not flags & SETTLED]
        unwanted = [delivery for delivery, _, flags in fragments if flags & SETTLED]
        transaction.answer(self.terminal, wanted, unwanted, self._credit(queues, len(fragments)))

    def _share_memory(self, queues: Sequence[Queue], size_bytes: int) -> None:
        """Hold the link if transient messages of that size fill the share of one of *queues*."""
        for queue in queues:
            if queue.is_over_share(size_bytes) and not self._is_closed:
                self._core.memory.throttle(queue).hold((self.terminal,))

    def _throttle(self, account: UserAccount) -> UserAccount | None:
        """Hold the link if *account*, of a queue's owner, is blocked; it, if single messages may be too much for it."""
        if account.is_blocked:
            if not self._is_closed:
                account.blocked.hold((self.terminal,))
            return account
        return account if account.quota.max_durable_bytes else None

    def _excess(self, queues: Sequence[Queue], size_bytes: int) -> str:
        """Why the quota of an owner of *queues* has no place for a message of that size; empty if it has."""
        for queue in queues:
            account = queue.account if queue.queue_id else None
            if account is not None and (excess := self._core.users.excess(account, size_bytes)):
                return excess
        return ""

    def credit(self, queues: Sequence[Queue], wanted: int, *, replicated: bool = False) -> int:
        """Return the initial credit of a sender, at most *wanted*; *queues* is empty if each message names its own."""
        if not queues:
            wanted = self._core.users.pace(self._account, self.terminal, wanted)
            return self._store_credit.take(self.terminal, wanted, replicated=replicated)
        return self._credit(queues, wanted)

    def _credit(self, queues: Sequence[Queue], wanted: int) -> int:
        """Return the credit that the client gets back for *wanted* messages to *queues*."""
        if self._is_closed:
            return 0
        if self._account.pace is not None:
            wanted = self._core.users.pace(self._account, self.terminal, wanted)
        for queue in queues:
            if queue.account is not None and queue.account.is_blocked and wanted:
                queue.account.blocked.withhold(self.terminal, wanted)
                return 0
            if queue.memory_throttle is not None and self.is_transient and wanted:
                queue.memory_throttle.withhold(self.terminal, wanted)
                return 0
            if queue.limits is not None and wanted:
                wanted = queue.limits.credit(self.terminal, wanted)
                self._blocked_by[queue.limits] = None
        if any(queue.queue_id for queue in queues):
            replicated = self._shares_queues and bool(shared(queues))
            if wanted and (self._store.full() or (replicated and self._links.members.holds)):  # `take`, without a call
                return self._store_credit.withhold(self.terminal, wanted)
        return wanted

    # ---- what is not stored ---------------------------------------------------------------------------------------

    def _put_nowhere(self, fragments: Sequence[Fragment]) -> None:
        """No queue wants these: they are done with as soon as all that came before them is."""
        if self._transaction is not None:
            self._answer_in(self._transaction, (), fragments)
            return
        confirmed = [delivery for delivery, _, flags in fragments if not flags & SETTLED]
        unwanted = [delivery for delivery, _, flags in fragments if flags & SETTLED]
        self._core.commits.when_durable(0, self._answer, (), confirmed, unwanted)

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
    """Return a callback that runs *then* when it is called for the second time."""
    calls = 0

    def called() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            then()

    return called
