"""Queues that follow a queue of another site: asynchronously, so the two may be far from each other (D23). Core only.

The source is followed over a connector. The copy (`copying`) is in the store, and no node of this broker: nobody can
use it before it is taken over. It is what the source's queue was at some earlier moment, also after a crash. What it
follows stands in its arguments in the wiring, so it goes on with the broker.

A link that ends, or can't be made, is asked for again: when its connection is back, else in a while.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ..amqp import encode
from ..amqp.attaching import ABSENT, SOURCE, TARGET, UNSETTLED, Attach, End
from ..amqp.values import Symbol, Ulong
from ..base.errors import CairnError, StoreError
from ..channel.words import ABORTED, MORE, AttachedEnd, Delivery, Error, Fragment, Outcome, OutwardEnd, TerminalEnd
from ..store.wiring import QueueRow
from .connectors import Connector, Done
from .copying import Copy, notes_name
from .following_words import END, TIME, decode
from .nodes import FOLLOWS, NOTES_OF
from .policy import policy_of
from .streams import AFTER, FOLLOWER, LINE, PLACE, STREAM

if TYPE_CHECKING:
    from .broker import Broker

log = logging.getLogger(__name__)

WAITING, ATTACHING, UP, BROKEN, ENDING = "waiting", "attaching", "up", "broken", "ending"
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 30.0
CREDIT = 32
"""Messages of a source that may be on their way."""
MAX_STEP_BYTES = 1 << 20
"""No message of a source is longer."""


class Following:
    """One of them."""

    def __init__(self, copy: Copy, row: QueueRow) -> None:
        said = row.arguments[FOLLOWS]
        self.copy = copy
        self.row = row
        self.connector = str(said["connector"])
        """Its name; it need not be there yet."""
        self.source = str(said["source"])
        """The queue there."""
        self.follower = str(said["follower"])
        """What it is called there."""
        self.state = WAITING
        self.why = ""
        """Why it is not up, or was not the last time."""
        self.channel: AttachedEnd | None = None
        self.wait_s = FIRST_WAIT_S
        self.as_of_us = copy.as_of_us
        """The source's clock, when it last said that this was all it had."""

    @property
    def name(self) -> str:
        return self.row.name

    def lag_s(self, now_us: int) -> float:
        """How long ago all that was done at the source was here, as far as the two clocks agree; 0 if never."""
        return max(0.0, (now_us - self.as_of_us) / 1e6) if self.as_of_us else 0.0

    @property
    def arguments(self) -> dict[str, Any]:
        """Those of the queue when it is taken over."""
        return {key: value for key, value in self.row.arguments.items() if key != FOLLOWS}


class Hearing:
    """The driver of a link from a source."""

    def __init__(self, owner: Followings, following: Following, channel: AttachedEnd) -> None:
        self.terminal = channel
        self._owner = owner
        self._following = following
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    def post(self, fragments: Sequence[Fragment]) -> None:
        for delivery, data, flags in fragments:
            if self._following.channel is not self.terminal:
                return
            self._size_bytes += len(data)
            self._pieces.append(data)
            if flags & ABORTED or self._size_bytes > MAX_STEP_BYTES:
                self._owner.fail(self._following, CairnError("the source", "it sends what is no step"))
            elif not flags & MORE:
                content, self._pieces, self._size_bytes = b"".join(self._pieces), [], 0
                self._owner.heard(self._following, self.terminal, content, delivery)

    def post_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        """A source that is one does not do that."""

    def request(self, limit: int, drain: bool) -> None:
        """A source wants nothing."""

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing was forwarded, so nothing is answered."""

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        """The same."""

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        """`Followings.link_went` has it, too."""


class Followings:
    """All of one broker (`connectors.User`)."""

    def __init__(self, broker: Broker) -> None:
        self.by_name: dict[str, Following] = {}
        self._by_channel: dict[TerminalEnd, Following] = {}
        self._broker = broker
        self._numbers = count(1)

    def recover(self) -> None:
        """Find those that there were."""
        nodes = self._broker.nodes
        for name, row in [*nodes.copies.items()]:
            if NOTES_OF in row.arguments and row.arguments[NOTES_OF] not in nodes.copies:
                self._broker.later(self._drop, row, _nothing)  # its copy was taken over, or deleted
            elif FOLLOWS in row.arguments:
                notes = nodes.copies.get(notes_name(name))
                self._recover(row, notes, nodes.copied.pop(name), nodes.copied.get(notes_name(name), ()))
        nodes.copied.clear()

    def _recover(self, row: QueueRow, notes: QueueRow | None, ids: Sequence[int], note_ids: Sequence[int]) -> None:
        store = self._broker.store
        copy = Copy(store, self._broker.clock, row.name, row.id, 0 if notes is None else notes.id)
        following = Following(copy, row)
        self.by_name[row.name] = following
        try:
            if notes is None:
                raise CairnError(f"the copy {row.name!r}", "its notes are gone", "delete it, and follow anew")
            copy.recover(ids, note_ids)
            following.as_of_us = copy.as_of_us
        except CairnError as error:
            log.error("%s", error)
            following.state, following.why = BROKEN, str(error)

    # ---- connections ------------------------------------------------------------------------------------------------

    def came(self, connector: Connector, connection: OutwardEnd) -> None:
        for following in self.by_name.values():
            if following.connector == connector.name and following.state == WAITING:
                following.wait_s = FIRST_WAIT_S
                self._attach(following, connection)

    def went(self, connector: Connector) -> None:
        for following in self.by_name.values():
            if following.connector == connector.name:
                self._is_over(following, "its connection broke")

    # ---- links ------------------------------------------------------------------------------------------------------

    def _attach(self, following: Following, connection: OutwardEnd) -> None:
        """Ask the source for what comes behind what is here."""
        copy = following.copy
        if not copy.line and copy.ids:
            copy.empty()
        said = {LINE: copy.line, PLACE: Ulong(copy.place), AFTER: Ulong(copy.after), FOLLOWER: following.follower}
        asked = Attach(
            f"{self._broker.network.me}/{following.name}/{next(self._numbers)}",
            End(SOURCE, STREAM + following.source),
            End(TARGET, following.name),
            snd_settle_mode=UNSETTLED,
            properties=encode.value({Symbol(key): one for key, one in said.items()}),
        )
        following.state, following.why = ATTACHING, ""

        def answered(found: Attach) -> None:
            if following.channel is channel and found.source.kind != ABSENT:  # else its detach comes next
                following.state = UP
                log.info("queue %s: it follows %s over %s", following.name, following.source, following.connector)
                channel.opened(Hearing(self, following, channel), None, CREDIT)

        channel = connection.attach(asked, _Asked(), answered, sends=False)
        following.channel = channel
        self._by_channel[channel] = following

    def heard(self, following: Following, channel: AttachedEnd, content: bytes, delivery: Delivery) -> None:
        """A message of the source: a step, or a part of one."""
        copy = following.copy
        try:
            head, events = decode(content)
            copy.heard(events)
            lsn = 0
            if head.flags & END:
                if full := self._broker.store.full():
                    raise CairnError(f"queue {following.name!r}", f"the store is full: {full}")
                lsn = copy.end(head)
        except CairnError as error:
            self.fail(following, error)
            return
        following.wait_s = FIRST_WAIT_S
        if head.flags & (END | TIME):
            following.as_of_us = max(following.as_of_us, head.as_of_us)
        self._broker.line.when_durable(lsn, channel.confirm, (delivery,), 1)

    def fail(self, following: Following, error: CairnError) -> None:
        """It can't go on as it is: the link is asked for anew."""
        channel = following.channel
        if channel is not None:
            channel.leave(Error("amqp:internal-error", str(error)), for_good=False)
            self._is_over(following, str(error))
            self._try_later(following)

    def link_went(self, channel: TerminalEnd) -> None:
        """A link of any kind is gone; if it is one of these, it is asked for again."""
        following = self._by_channel.get(channel)
        if following is not None and following.channel is channel:
            error = channel.error
            why = "the source ended it" if error is None else f"{error.condition}: {error.description}"
            self._is_over(following, why)
            self._try_later(following)

    def _is_over(self, following: Following, why: str) -> None:
        channel, following.channel = following.channel, None
        if channel is not None:
            self._by_channel.pop(channel, None)
            following.copy.drop()
            following.state, following.why = WAITING, why
            log.warning("queue %s: %s", following.name, why)

    def _try_later(self, following: Following) -> None:
        self._broker.timers.after(following.wait_s, self._try, following)
        following.wait_s = min(2 * following.wait_s, LONGEST_WAIT_S)

    def _try(self, following: Following) -> None:
        connector = self._broker.connectors.by_name.get(following.connector)
        if self.by_name.get(following.name) is not following or following.state != WAITING:
            return
        if connector is not None and connector.connection is not None:
            self._attach(following, connector.connection)

    # ---- what management asks for -----------------------------------------------------------------------------------

    def create(self, name: str, connector: str, source: str, arguments: Mapping[str, Any], done: Done) -> None:
        """Follow the queue *source*; *arguments* are those of the queue *name* when it is taken over."""
        broker = self._broker
        try:
            self._check_alone(name)
            if name.startswith("$"):
                raise StoreError(f"queue {name!r}", "names that begin with a dollar are the broker's own")
            policy_of(name, arguments)
            broker.nodes.check_free(name)
        except StoreError as error:
            done(error)
            return
        said = {"connector": connector, "source": source, "follower": uuid4().hex}

        def noted(row: QueueRow | Exception) -> None:
            if isinstance(row, Exception):
                done(row)
                return
            broker.nodes.copies[row.name] = row
            made = partial(broker.post, self._made, row, said, done)
            broker.store.create_queue(name, made, {**arguments, FOLLOWS: said})

        broker.store.create_queue(notes_name(name), lambda row: broker.post(noted, row), {NOTES_OF: name})

    def _made(
        self, notes: QueueRow, said: Mapping[str, str], done: Done, row: QueueRow | Exception
    ) -> None:
        if isinstance(row, QueueRow) and row.arguments.get(FOLLOWS) != said:  # somebody was faster
            is_followed = FOLLOWS in row.arguments
            row = StoreError(f"queue {row.name!r}", "it is there already", "choose another name")
            if is_followed:
                done(row)
                return
        if isinstance(row, Exception):
            self._drop(notes, lambda error: done(row))
            return
        self._broker.nodes.copies[row.name] = row
        self._recover(row, notes, (), ())
        self._try(self.by_name[row.name])
        done(None)

    def _check_alone(self, name: str) -> None:
        """Raises `StoreError` if other brokers would have to have that queue, too."""
        if self._broker.cluster is not None and not self._broker.cluster.is_alone:
            why = "the brokers of a cluster can't follow another site yet"
            raise StoreError(f"queue {name!r}", why, "follow with a broker of its own, or with a cluster of one")

    def begin_anew(self, following: Following, done: Done) -> None:
        """Drop what there is, and have all that the source has now."""
        if following.state in (BROKEN, ENDING):
            done(StoreError(f"queue {following.name!r}", f"it is {following.state}", "delete it, and follow anew"))
            return
        self._hang_up(following)
        lsn = following.copy.empty()
        following.state, following.why = WAITING, ""
        self._broker.line.when_durable(lsn, done, None)
        self._try(following)

    def _hang_up(self, following: Following) -> None:
        """The source need not keep anything."""
        channel, following.channel = following.channel, None
        if channel is not None:
            self._by_channel.pop(channel, None)
            channel.leave(None, for_good=True)
        following.copy.drop()

    def take_over(self, following: Following, done: Done, *, force: bool) -> None:
        """The copy is a queue as any other from now on, and follows nothing; all its messages count as delivered."""
        copy = following.copy
        if following.state in (BROKEN, ENDING):
            done(StoreError(f"queue {following.name!r}", f"it is {following.state}", following.why or "wait"))
            return
        try:
            self._check_alone(following.name)
        except StoreError as error:
            done(error)
            return
        if not copy.is_whole and not force:
            why = "it has not got all that the source had"
            done(StoreError(f"queue {following.name!r}", why, "wait until it is whole, or take over what there is"))
            return
        self._hang_up(following)
        following.state = ENDING
        row = replace(following.row, arguments=following.arguments)

        def changed(error: Exception | None) -> None:
            if error is not None:
                following.state = WAITING
                self._try_later(following)
            else:
                del self.by_name[following.name]
                self._broker.nodes.adopt(row, array("Q", copy.ids.values()))
                log.warning("queue %s: taken over as of LSN %d of %s", row.name, copy.place, copy.line)
                if (notes := self._broker.nodes.copies.get(notes_name(row.name))) is not None:
                    self._drop(notes, _nothing)
            done(error)

        def change() -> None:
            self._broker.store.change_queue(row.id, row.arguments, lambda error: self._broker.post(changed, error))

        self._broker.line.when_durable(0, change)

    def delete(self, following: Following, done: Done) -> None:
        """Follow no more, and drop what there is."""
        if following.state == ENDING:
            done(StoreError(f"queue {following.name!r}", "it is just being taken over", "wait"))
            return
        self._hang_up(following)
        following.state = ENDING
        notes = self._broker.nodes.copies.get(notes_name(following.name))

        def gone(error: Exception | None) -> None:
            if error is not None:
                following.state = WAITING
                self._try_later(following)
            else:
                del self.by_name[following.name]
                if notes is not None:
                    self._drop(notes, _nothing)
            done(error)

        self._drop(following.row, gone)

    def _drop(self, row: QueueRow, done: Done) -> None:
        """A store queue that is no node, and all that is on it."""
        broker = self._broker

        def gone(error: Exception | None) -> None:
            if error is None:
                broker.nodes.copies.pop(row.name, None)
                lsn = broker.store.purge(row.id, broker.clock.wall_us(), is_final=True)
                broker.line.when_durable(lsn, broker.store.finish_destroy_queue, row.id, _nothing)
            done(error)

        broker.store.begin_destroy_queue(row.id, lambda error: broker.post(gone, error))


class _Asked(Hearing):
    """The driver of a link that was asked for and not answered yet: nothing can come on it."""

    def __init__(self) -> None: ...

    def post(self, fragments: Sequence[Fragment]) -> None: ...


def _nothing(error: Exception | None) -> None:
    """Nobody waits to hear how that went; the log tells what went wrong."""
