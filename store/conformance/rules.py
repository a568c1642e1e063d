"""Operations on queues and messages, in random histories by hypothesis, with crashes in between.

An *operation* changes the store and the model. After each one, the content that would be expected if it were the last
one that lasts is recorded. After a crash, the content of the store must equal one of these records, and none from
before the last time at which everything was durable. A part of `conformance`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ...base.errors import MessageLocked, StoreError, TransactionEnded
from ..contract.wiring_rows import QueueRow
from .model import ADD, TAKE, Lasting, Model, StoreMaker, observe, without_queue

_T = TypeVar("_T")
PICK = st.integers(0, 255)
CONTENT = st.one_of(
    st.binary(max_size=20), st.builds(lambda byte, size: bytes([byte]) * size, PICK, st.sampled_from([5000, 70_000]))
)
_NAMES = ("a", "b", "c")


class MessageRules(RuleBasedStateMachine):
    """The rules for messages, on one store and on the model."""

    def __init__(self, maker: StoreMaker) -> None:
        super().__init__()
        self.maker = maker
        self.now_us = 1000
        self.xids = 0
        self.top_id = 0
        """The highest id of a message that was ever durable."""
        self.durable_lsn = 0
        self._open(Model())
        self._create("a")

    def _open(self, model: Model) -> None:
        self.model = model
        self.store = self.maker.open()
        self.store.run_inline(self.store.became_durable)
        self.store.kick()
        assert self.store.durable_lsn >= self.durable_lsn, "LSNs keep rising"
        self.last_lsn = 0
        self.since = [model.lasting()]

    def _call(self, lsn: int = 0) -> None:
        """Something was done that lasts from *lsn* on."""
        self.last_lsn = max(self.last_lsn, lsn)
        self.since.append(self.model.lasting())

    def _pick(self, among: Sequence[_T], pick: int) -> _T:
        return among[pick % len(among)]

    def _refused(self, error: type[StoreError], call: Callable[[], object]) -> None:
        try:
            call()
        except error:
            return
        raise AssertionError(f"it was not refused with {error.__name__}")

    def _create(self, name: str) -> None:
        made: list[QueueRow | Exception] = []
        self.store.create_queue(name, made.append)
        row = made[0]
        assert isinstance(row, QueueRow), row
        self.model.names[row.id] = name
        self.model.on.setdefault(row.id, [])

    @rule(name=st.sampled_from(_NAMES))
    def create_queue(self, name: str) -> None:
        self._create(name)

    @precondition(lambda self: self._going())
    @rule(pick=PICK, how=st.sampled_from(["crash", "to its end", "to its end", "not at all", "not at all"]))
    def destroy_queue(self, pick: int, how: str) -> None:
        """Destroy a queue; a crash occurs after SQL has recorded the deletion, and before the messages are deleted."""
        if how == "not at all":
            return
        queue_id = self._pick(self._going(), pick)
        answers: list[Exception | None] = []
        self.kick()  # SQL is durable at once: an outcome that it rests on must not be lost
        self.store.begin_destroy_queue(queue_id, answers.append)
        self.since = [without_queue(one, queue_id) for one in self.since]
        if how == "crash" and self.maker.can_crash:
            del self.model.names[queue_id], self.model.on[queue_id]
            self._crash()
            return
        self.store.purge(queue_id, self.now_us, is_final=True)
        for tx in [tx for tx in self.model.open if any(op.queue_id == queue_id for op in tx.ops)]:
            self.model.rolled_back(tx)
            self._refused(TransactionEnded, lambda tx=tx: tx.txn.commit(self.now_us))  # type: ignore[misc]
        del self.model.names[queue_id], self.model.on[queue_id]
        self.model.sweep()
        self._call()
        self.kick()
        self.store.finish_destroy_queue(queue_id, answers.append)
        assert answers == [None, None], answers

    def _going(self) -> list[int]:
        """The queues that may be destroyed."""
        busy = {op.queue_id for ops in self.model.prepared.values() for op in ops}
        return sorted(set(self.model.names) - busy)

    @precondition(lambda self: self.model.names)
    @rule(pick=PICK, kept=st.just([]) | st.just([]) | st.lists(PICK, max_size=3))
    def purge(self, pick: int, kept: list[int]) -> None:
        queue_id = self._pick(sorted(self.model.names), pick)
        on = self.model.on[queue_id]
        keep = {self._pick(list(on), one) for one in kept} if on else set()
        lsn = self.store.purge(queue_id, self.now_us, keep=keep)
        self.model.purge(queue_id, keep)
        self._call(lsn)

    @precondition(lambda self: self.model.names)
    @rule(pick=PICK, content=CONTENT)
    def put_message(self, pick: int, content: bytes) -> None:
        queue_id = self._pick(sorted(self.model.names), pick)
        message_id, lsn = self.store.put(queue_id, content, self.now_us)
        self._arrived([message_id], [content], queue_id, lsn)

    @precondition(lambda self: self.model.names)
    @rule(pick=PICK, contents=st.lists(CONTENT, min_size=1, max_size=6))
    def put_all(self, pick: int, contents: list[bytes]) -> None:
        queue_id = self._pick(sorted(self.model.names), pick)
        ids, lsn = self.store.put_all(queue_id, contents, self.now_us)
        assert len(ids) == len(contents)
        self._arrived(list(ids), contents, queue_id, lsn)

    def _arrived(self, ids: list[int], contents: list[bytes], queue_id: int, lsn: int) -> None:
        assert ids == sorted(set(ids))
        assert ids[0] > self.top_id, "ids rise, and are never used again"
        self.model.contents |= dict(zip(ids, contents, strict=True))
        for message_id in ids:
            self.model.place(message_id, queue_id)
        self._call(lsn)

    @rule(content=CONTENT)
    def stage(self, content: bytes) -> None:
        message_id = self.store.stage(content, self.now_us)
        assert message_id > self.top_id
        self.model.growing[message_id] = content
        self._call()

    @precondition(lambda self: self.model.growing)
    @rule(pick=PICK, content=CONTENT, last=st.booleans())
    def append_content(self, pick: int, content: bytes, last: bool) -> None:
        growing = self.model.growing
        message_id = self._pick(sorted(growing), pick)
        if self.model.names:
            queue_id = min(self.model.names)
            self._refused(StoreError, lambda: self.store.enqueue(message_id, queue_id, self.now_us))
        self.store.append_content(message_id, content, self.now_us, last=last)
        growing[message_id] += content
        if last:
            self.model.contents[message_id] = growing.pop(message_id)
            self.model.staged.add(message_id)
        self._call()

    @precondition(lambda self: self._enqueuable())
    @rule(pick=PICK)
    def enqueue(self, pick: int) -> None:
        message_id, queue_id = self._pick(self._enqueuable(), pick)
        lsn = self.store.enqueue(message_id, queue_id, self.now_us)
        self.model.place(message_id, queue_id)
        self._call(lsn)
        self._refused(StoreError, lambda: self.store.enqueue(message_id, queue_id, self.now_us))

    def _enqueuable(self) -> list[tuple[int, int]]:
        taken = {*self.model.places(), *self.model.pairs(ADD)}
        pairs = [(message_id, queue_id) for message_id in self.model.contents for queue_id in self.model.names]
        return sorted(set(pairs) - taken)

    @precondition(lambda self: self.model.places())
    @rule(pick=PICK)
    def dequeue(self, pick: int) -> None:
        message_id, queue_id = self._pick(self.model.places(), pick)
        if (message_id, queue_id) in self.model.pairs(TAKE):
            self._refused(MessageLocked, lambda: self.store.dequeue(message_id, queue_id, self.now_us))
            return
        lsn = self.store.dequeue(message_id, queue_id, self.now_us)
        self.model.take(message_id, queue_id)
        self._call(lsn)
        self._refused(StoreError, lambda: self.store.dequeue(message_id, queue_id, self.now_us))
        assert self.store.holds(message_id) == (message_id in self.model.contents)

    @precondition(lambda self: self.model.staged or self.model.growing)
    @rule(pick=PICK)
    def destroy(self, pick: int) -> None:
        message_id = self._pick(sorted({*self.model.staged, *self.model.growing}), pick)
        if message_id in {one for one, _ in self.model.pairs(ADD)}:
            self._refused(MessageLocked, lambda: self.store.destroy(message_id, self.now_us))
            return
        lsn = self.store.destroy(message_id, self.now_us)
        self.model.staged.discard(message_id)
        self.model.growing.pop(message_id, None)
        self.model.contents.pop(message_id, None)
        self._call(lsn)
        assert not self.store.holds(message_id)

    @rule()
    def kick(self) -> None:
        self.store.kick()
        assert self.store.durable_lsn > self.last_lsn, "everything that was recorded is durable"
        self.durable_lsn = self.store.durable_lsn
        self.since = [self.model.lasting()]
        self.top_id = max([self.top_id, *self.since[0].contents])
        assert observe(self.store) == self.since[0]
        assert self._bytes() == self.model.bytes(), "what was purged is not counted once that is durable"

    def _bytes(self) -> dict[int, int]:
        return {queue_id: self.store.bytes_on(queue_id) for queue_id in self.model.names}

    @rule(how=st.sampled_from(["close", "crash", *["continue"] * 4]))
    def stop(self, how: str) -> None:
        """Seldom, so that there is something to lose."""
        if how == "close":
            expected = self.model.lasting()
            self.store.close()
            self._found([expected])
        elif how == "crash" and self.maker.can_crash:
            self._crash()

    def _crash(self) -> None:
        self.maker.crash(self.store)
        self._found(self.since)

    def _found(self, allowed: list[Lasting]) -> None:
        """The store is opened again: what is there is one of those."""
        model = self.model
        if not self.maker.keeps:
            self.top_id = self.durable_lsn = 0
            self._open(Model())
            assert not [*self.store.queues()]
            assert observe(self.store) == Model().lasting()
            return
        self._open(model)
        found = observe(self.store)
        assert found in allowed, f"found {found}, expected one of {allowed}"
        assert {row.id: row.name for row in self.store.queues()} == model.names
        model.opened_again(found)
        assert self._bytes() == model.bytes(), "bytes on queues are counted again when a store is opened"
        self.since = [found]
        self.top_id = max([self.top_id, *found.contents])

    @invariant()
    def what_is_shown(self) -> None:
        shown = {queue_id: list(ids) for queue_id, ids in self.store.messages().items() if len(ids)}
        assert shown == {queue_id: ids for queue_id, ids in self.model.on.items() if ids}

    def teardown(self) -> None:
        try:
            self.store.close()
        finally:
            self.maker.remove()
