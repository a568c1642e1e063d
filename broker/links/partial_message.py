"""Messages that arrive in pieces: stored, or held, while more of them is still arriving. Core only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ...amqp.codec import header
from ...amqp.codec.primitives import Malformed
from ...amqp.codec.sections import envelope
from ...amqp.codec.user_id_check import NotTheSender, Walk, condition_of
from ..kernel.commit_queue import Shown
from ..kernel.context import CoreContext
from ..kernel.memory_budget import ENTRY_BYTES, NO_MEMORY
from ..messages.entry import Entry, HeldContent
from ..messages.message_times import TimedEntry, may_have_times, stamped, times_of
from ..queues.ends import TargetQueue
from ..transactions.transaction import ClientTransaction
from ..users.user_accounts import UserAccount

PIECE_BYTES = 64 * 1024
"""A message that grows past this while it arrives is stored piece by piece."""
LEAST_PIECE_BYTES = 4 * 1024
"""The size of pieces while no memory is left, so that each of many arriving messages holds little."""


class PartialMessage:
    """A message that is arriving."""

    def __init__(self, core: CoreContext, walk: Walk | None) -> None:
        """*walk*: along its sections, if its sender is vouched for."""
        self.walk = walk
        self.wrong: tuple[str, str] | None = None
        """The AMQP error it is refused with at its end; nothing of it is kept."""
        self.full = ""
        """The reason why the message is refused at its end, and its content ignored."""
        self.held_bytes = 0
        """Bytes that arrived since the last piece."""
        self.queues: Sequence[TargetQueue] | None = None
        """The targets, once enough has arrived to determine them; then pieces are stored, or held if transient."""
        self.size_bytes = 0
        """Bytes that have arrived of the message."""
        self.unwanted: Collection[TargetQueue] = ()
        """Target queues whose limits drop the message."""
        self.homeless = False
        """True if enough has arrived, but the target is not known: all of it is held to its end, or it is refused."""
        self.transaction: ClientTransaction | None = None
        """The one that it began to arrive for."""
        self._core = core
        self._held: list[bytes] = []
        self.beginning = b""
        """The sections before the body, if a target queue inspects them."""
        self._message_id = 0
        self._staged_bytes: dict[UserAccount, int] = {}
        """Bytes stored and on no queue yet, by the charged user: a queue may be deleted, or change its owner."""
        self._stores = False
        self.is_in_memory = False
        """True if pieces are held in memory, as some queues are transient, or the message needs no storing."""
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        """Bytes that the pieces count for in the account of each of the queues."""

    def add(self, data: bytes) -> None:
        """Add bytes: until stored or on a queue they count in the memory budget, on no queue's account."""
        if not (self.homeless and self.full):
            self._held.append(data)
            self.size_bytes += len(data)
            self.held_bytes += len(data)
            self._core.memory.used_bytes += len(data)

    def has_piece(self) -> bool:
        """Return whether the bytes since the last piece make up the next one."""
        scarce = self._core.memory.free_bytes <= 0
        if self.homeless:
            if scarce and not self.full:
                self.refuse(NO_MEMORY)
            return False
        return self.held_bytes >= (LEAST_PIECE_BYTES if scarce else PIECE_BYTES)

    def walk_on(self, walk: Walk, data: bytes, *, last: bool) -> None:
        """Check the format of the next bytes; sets `wrong` if they are invalid."""
        try:
            walk.feed(data, last=last)
        except (NotTheSender, Malformed) as error:
            self._fail(condition_of(error))

    def _fail(self, wrong: tuple[str, str]) -> None:
        self.drop()
        self.walk, self.wrong = None, wrong

    def complete(self) -> bytes:
        """Return the content that is held, before the message has target queues."""
        return b"".join(self._held)

    def settle_on(self, queues: Sequence[TargetQueue]) -> None:
        """Set the target queues of the message; its first piece has arrived."""
        self.queues = queues
        piece = self.complete()
        lives = any(queue.policy.message_ttl_ms for queue in queues)
        try:
            head = header.parse(piece)
            if lives or may_have_times(piece, head):
                piece = stamped(piece, head, self._core.clock.wall_us(), always=lives)
                self._held = [piece]
                self.beginning = envelope(piece)
            elif any(queue.policy.looks_inside for queue in queues):
                self.beginning = envelope(piece)
            self._stores = head.durable and any(queue.queue_id for queue in queues)
        except Malformed as error:
            self._fail(("amqp:decode-error", str(error)))
            return
        self.is_in_memory = any(self._is_held_for(queue) for queue in queues)

    def end_piece(self, *, last: bool = False) -> None:
        """End the current piece: the bytes that arrived since the previous one. It may be the *last* one."""
        piece = self.complete()
        self._let_go_held()
        self._take(piece, last=last)

    def finish(self, enqueue: Callable[[int, int, int], int], now_us: int) -> tuple[int, Shown]:
        """Enqueue the complete message, unless it is `full`; return the LSN to wait for, and its entries.

        *enqueue* belongs to the store, or does it later and returns any LSN except 0.
        """
        lsn = 0
        shown: list[tuple[TargetQueue, list[Entry]]] = []
        for queue in self._end():
            if queue.is_deleting:
                continue
            if self._is_held_for(queue):
                size_bytes = sum(map(len, self._pieces)) + ENTRY_BYTES
                entry = self._entry(queue, 0, HeldContent(self._pieces), size_bytes)
            else:
                lsn = enqueue(self._message_id, queue.queue_id, now_us)
                entry = self._entry(queue, self._message_id, None, ENTRY_BYTES)
            shown.append((queue, [entry]))
        if self._message_id and not lsn:
            self._destroy()
        return lsn, shown

    def finish_in(self, transaction: ClientTransaction, now_us: int) -> None:
        """Enqueue the complete message in a transaction, unless it is `full`."""
        for queue in self._end():
            times = times_of(self.beginning, queue.policy.message_ttl_ms) if self.beginning else None
            if self._is_held_for(queue):
                held_bytes = sum(map(len, self._pieces))
                transaction.staging.hold(queue, HeldContent(self._pieces), held_bytes, times, self.beginning)
            else:
                transaction.staging.enqueue(queue, self._message_id, times, self.beginning)
        if self._message_id:  # unless the transaction has it
            self._core.store.transactions.discard((self._message_id,), now_us)

    def _end(self) -> list[TargetQueue]:
        """End the last piece; return the queues that get the message, none if it is `full`."""
        assert self.queues is not None
        self.end_piece(last=True)
        self._let_go()
        if self.full:
            return []
        self._unstage()
        return [queue for queue in self.queues if queue not in self.unwanted]

    def _entry(self, queue: TargetQueue, message_id: int, content: HeldContent | None, held_bytes: int) -> Entry:
        times = times_of(self.beginning, queue.policy.message_ttl_ms) if self.beginning else None
        entry = Entry(message_id, next(queue.positions), content, held_bytes)
        if times is not None:
            queue.begin_timing()
            entry = TimedEntry(message_id, entry.position, content, held_bytes, times)
        if queue.policy.looks_inside:
            entry.first_bytes = self.beginning
        return entry

    def drop(self) -> None:
        """Discard the message: it is not wanted, withdrawn by its sender, or handled as a single content."""
        self._let_go_held()
        self._let_go()
        if self._message_id:
            self._destroy()

    def _is_held_for(self, queue: TargetQueue) -> bool:
        return not (self._stores and queue.queue_id)

    def _take(self, piece: bytes, *, last: bool) -> None:
        if self.full or self.wrong is not None:
            return
        store, now_us = self._core.store, self._core.clock.wall_us()
        if self._stores:
            full = store.full(len(piece), 1 + (len(self.queues or ()) if last else 0))
            if full:
                self.refuse(f"the store is full: {full}")
                return
            for queue in self.queues or ():
                excess = "" if queue.account is None else self._core.users.excess(queue.account, self.size_bytes)
                if excess:
                    self.refuse(excess)
                    return
            if self._message_id:
                store.append_content(self._message_id, piece, now_us, last=last)
            else:
                self._message_id = store.stage(piece, now_us)
            self._stage(len(piece))
        if self.is_in_memory:
            self._hold(piece)

    def _stage(self, size_bytes: int) -> None:
        """Charge more bytes to the owners of the target queues."""
        for queue in self.queues or ():
            account = queue.account
            if account is not None:
                account.staged_bytes += size_bytes
                self._staged_bytes[account] = self._staged_bytes.get(account, 0) + size_bytes

    def _unstage(self) -> None:
        """Take back all that was charged."""
        charged, self._staged_bytes = self._staged_bytes, {}
        for account, size_bytes in charged.items():
            account.staged_bytes -= size_bytes

    def _hold(self, piece: bytes) -> None:
        assert self.queues is not None
        holding = [queue for queue in self.queues if self._is_held_for(queue)]
        if any(len(piece) > queue.memory.spare_bytes() for queue in holding):
            self.refuse(NO_MEMORY)
            return
        self._pieces.append(piece)
        self._pieces_bytes += len(piece)
        for queue in holding:
            queue.memory.hold(len(piece))

    def refuse(self, reason: str) -> None:
        """Refuse the rest of the message, and drop its content."""
        self.full = reason
        self.drop()

    def _let_go_held(self) -> None:
        self._core.memory.used_bytes -= self.held_bytes
        self._held, self.held_bytes = [], 0

    def _let_go(self) -> None:
        """Release the memory that its pieces held."""
        for queue in self.queues or ():
            if self._is_held_for(queue):
                queue.memory.release(self._pieces_bytes)
        self._pieces_bytes = 0

    def _destroy(self) -> None:
        self._unstage()
        self._core.store.destroy(self._message_id, self._core.clock.wall_us())
        self._message_id = 0
