"""What all producers have in common: the way of a message from its sender to its queues, and of the answer back.

Core only. Where messages go is for the kinds in `senders`: to one queue, through an exchange, or where each one says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..amqp import header
from ..amqp.codec import Malformed
from ..amqp.vouching import NotTheSender, Walk, condition_of, vouch
from ..channel.words import ABORTED, MORE, SETTLED, Delivery, Fragment, Outcome, TerminalEnd
from .cluster import Kept
from .entry import Entry
from .gate import Gate
from .growing import NO_MEMORY, Growing
from .line import Shown
from .memory import ENTRY_BYTES
from .queue import Queue
from .times import TimedEntry, stamped, tells_times, times_of

if TYPE_CHECKING:
    from .broker import Broker
    from .transaction import Transaction

Queues = tuple[Queue, ...]
"""Where a message goes: to nobody, one queue or several."""


class Producer:
    """The driver of a channel on which a client sends: whole messages in batches, long ones piece by piece."""

    def __init__(self, broker: Broker, terminal: TerminalEnd, user: str) -> None:
        self.terminal = terminal
        self._user = user
        self.vouches = broker.vouch
        """Messages may not say that they are from somebody else."""
        self._broker = broker
        self._store = broker.store
        self._cluster = broker.cluster
        self._growing: Growing | None = None
        self._transaction: Transaction | None = None
        """The one that what is being looked at is for."""
        self._blocked_by: dict[Gate, None] = {}
        """Gates that withhold credit of this channel, or did."""

    def post(self, fragments: Sequence[Fragment]) -> None:
        whole: list[Fragment] = []
        for fragment in fragments:
            if not fragment[2] & (MORE | ABORTED) and self._growing is None:
                whole.append(fragment)
                continue
            if whole:
                self._take(whole)
                whole = []
            self._grow(*fragment)
        if whole:
            self._take(whole)

    def post_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        self._transaction = self._broker.transactions.find(connection, txn_id)
        self.post(fragments)
        self._transaction = None

    def request(self, limit: int, drain: bool) -> None:
        """A client that sends wants nothing."""

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing was forwarded, so nothing is answered."""

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        """The same."""

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._drop_growing()
        self._broker.no_credit(self.terminal)
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
        """Where a long message goes that begins with *start*; None if that is not known before it is whole."""
        raise NotImplementedError

    def _finish_unwanted(self, delivery: Delivery, flags: int) -> None:
        """A long message that goes nowhere is complete."""
        raise NotImplementedError

    def _put(self, queues: Queues, fragments: Sequence[Fragment]) -> None:
        """Whole messages for the same queues, one or more."""
        for queue in queues:
            if queue.gate is not None:
                self._put_gated(queues, fragments)
                return
        self._record(queues, fragments)

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

    # ---- recording ------------------------------------------------------------------------------------------------

    def _put_gated(self, queues: Queues, fragments: Sequence[Fragment]) -> None:
        """The same where a queue may not want each of them."""
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
        """What the queue's gate says of a message that begins so, as `Gate.look_at` has it."""
        if queue.gate is None:
            return ""
        staged = None if self._transaction is None else self._transaction.staged_at(queue.gate)
        return queue.gate.look_at(start, size_bytes, staged)

    def _stage(self, queues: Sequence[Queue], start: bytes, size_bytes: int) -> None:
        """Gates have let it in: if that is for a transaction, it counts at them until that is over."""
        if self._transaction is not None:
            for queue in queues:
                if queue.gate is not None:
                    self._transaction.stage(queue.gate, start, size_bytes)

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

    # ---- messages that arrive in pieces ---------------------------------------------------------------------------

    def _grow(self, delivery: Delivery, data: bytes, flags: int) -> None:
        growing = self._growing
        if flags & ABORTED:
            self._drop_growing()
            self.terminal.release((delivery,), 1)
            return
        if growing is None:
            growing = self._growing = Growing(self._broker, Walk(self._user) if self.vouches else None)
            if self._transaction is not None:
                growing.transaction = self._transaction
                growing.transaction.partial += 1
        if growing.walk is not None:
            growing.walk_on(growing.walk, data, last=not flags & MORE)
        if growing.wrong is None:
            growing.add(data)
        if not flags & MORE:
            self._growing = None
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
            if growing.queues is None:
                queues = self._queues_of(growing.whole())
                if queues is None or any(queue.replicated for queue in queues):  # these take it whole
                    growing.homeless = True
                    return
                growing.settle_on(queues)
            growing.end_piece()
            for queue in growing.queues or ():
                if not growing.full and queue.gate is not None and (why := queue.gate.too_long(growing.size_bytes)):
                    growing.refuse(why)

    def _drop_growing(self) -> None:
        growing, self._growing = self._growing, None
        if growing is not None:
            growing.drop()
            if growing.transaction is not None:
                growing.transaction.partial -= 1

    def _finish(self, growing: Growing, queues: Queues, delivery: Delivery, flags: int) -> None:
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
            growing.finish_in(self._transaction, self._broker.clock.wall_us())
            self._answer_in(self._transaction, queues, ((delivery, b"", flags),))
            return
        lsn, shown = self._put_grown(growing, self._broker.clock.wall_us())
        settled = bool(flags & SETTLED)
        if growing.full:
            self._refuse(queues, (delivery,), growing.full)
        elif queues and not shown:
            self._reject_gone((delivery,), f"the queue {queues[0].name!r}")
        else:
            confirmed, unwanted = ([], [delivery]) if settled else ([delivery], [])
            self._broker.line.show_long(lsn, shown, self._answer, queues, confirmed, unwanted)

    def _pass_gates(self, growing: Growing, queues: Queues, delivery: Delivery, flags: int) -> bool:
        """Whether any queue takes the long message that is complete; if none does, all is said and done."""
        if growing.full or all(queue.gate is None for queue in queues):
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

    def _put_grown(self, growing: Growing, now_us: int) -> tuple[int, Shown]:
        """A long message is complete: the LSN to wait for, and what is on which queue then."""
        return growing.finish(self._store.enqueue, now_us)


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
