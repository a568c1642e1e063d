"""Queues that copy a queue of another site asynchronously, so that the two may be far apart (D23). Core only.

The queue of the other site, the source, is followed over a connector. The replica is in the store, and is no node of
this broker: clients can use it only after it is promoted. It is the state of the source at some earlier time, also
after a crash. The arguments of the queue in the wiring name its source, so federation continues after a restart.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any
from uuid import uuid4

from ...amqp.links.attach import SOURCE, TARGET, UNSETTLED, Attach, End
from ...amqp.ports import ABORTED, MORE, AttachedEnd, Delivery, Error, Fragment, OutwardEnd
from ...base.callbacks import ignore
from ...base.errors import CairnError, StoreError
from ...store.contract.wiring_rows import QueueRow
from ..contents.policy import policy_of
from ..kernel.idle_driver import IdleDriver
from ..links.context import LinkContext
from ..nodes.stored_nodes import FOLLOWS, NOTES_OF
from ..outbound.connectors import FIRST_WAIT_S, ConnectorLink, ConnectorLinks, Connectors, Done
from .federation_link import BROKEN, TABLE, FederationAction, FederationEvent
from .replica import DownstreamReplica, notes_name
from .upstream import STREAM
from .upstream_link import ReplicaPosition
from .wire_format import END, TIME, decode

log = logging.getLogger(__name__)

CREDIT = 32
"""Messages of a source that may be on their way."""
MAX_STEP_BYTES = 1 << 20
"""No message of a source is longer."""


class FederatedQueue(ConnectorLink):
    """A queue that copies a queue of another site."""

    def __init__(self, copy: DownstreamReplica, row: QueueRow) -> None:
        said = row.arguments[FOLLOWS]
        super().__init__(row.name, str(said["connector"]))
        self.copy = copy
        self.row = row
        self.source = str(said["source"])
        """The name of the upstream queue."""
        self.follower = str(said["follower"])
        """The name of this copy at the upstream."""
        self.as_of_us = copy.as_of_us
        """The source's clock when it last reported that it had nothing more."""

    def heeds(self, event: FederationEvent) -> bool:
        """Return whether *event* counts in this state."""
        return (self.state, event) in TABLE

    def handle(self, event: FederationEvent, reason: str | None = None) -> FederationAction | None:
        """Change the state; return the action, or None if *event* is ignored. *reason*: shown from now on."""
        if not self.heeds(event):
            return None
        self.state, action = TABLE[self.state, event]
        if reason is not None:
            self.reason = reason
        return action

    def lag_s(self, now_us: int) -> float:
        """Return the seconds since the copy last had all changes, as far as the two clocks agree; 0 if never."""
        return max(0.0, (now_us - self.as_of_us) / 1e6) if self.as_of_us else 0.0

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the queue after it is promoted."""
        return {key: value for key, value in self.row.arguments.items() if key != FOLLOWS}


class UpstreamReceiver(IdleDriver):
    """The driver of a link from a source."""

    def __init__(self, owner: FederatedQueues, federated: FederatedQueue, channel: AttachedEnd) -> None:
        self.terminal = channel
        self._owner = owner
        self._federated = federated
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    def receive(self, fragments: Sequence[Fragment]) -> None:
        for delivery, data, flags in fragments:
            if self._federated.channel is not self.terminal:
                return
            self._size_bytes += len(data)
            self._pieces.append(data)
            if flags & ABORTED or self._size_bytes > MAX_STEP_BYTES:
                self._owner.fail(self._federated, CairnError("the source", "it sent an invalid replication step"))
            elif not flags & MORE:
                content, self._pieces, self._size_bytes = b"".join(self._pieces), [], 0
                self._owner.received(self._federated, self.terminal, content, delivery)


class FederatedQueues(ConnectorLinks[FederatedQueue]):
    """The federated queues of one broker."""

    peer = "the source"

    def __init__(self, links: LinkContext, connectors: Connectors, container_id: str) -> None:
        super().__init__(links.core, connectors)
        self._nodes = links.nodes
        self._members = links.members
        self._container_id = container_id
        self._numbers = count(1)

    def recover(self) -> None:
        """Find those that there were."""
        nodes = self._nodes
        for name, row in [*nodes.copies.items()]:
            if NOTES_OF in row.arguments and row.arguments[NOTES_OF] not in nodes.copies:
                self._core.post(self._drop, row, ignore)  # its copy was promoted or deleted
            elif FOLLOWS in row.arguments:
                notes = nodes.copies.get(notes_name(name))
                self._recover(row, notes, nodes.copied.pop(name), nodes.copied.get(notes_name(name), ()))
        nodes.copied.clear()

    def _recover(self, row: QueueRow, notes: QueueRow | None, ids: Sequence[int], note_ids: Sequence[int]) -> None:
        store = self._core.store
        copy = DownstreamReplica(store, self._core.clock, row.name, row.id, 0 if notes is None else notes.id)
        federated = FederatedQueue(copy, row)
        self.by_name[row.name] = federated
        self._core.users.copy_came(row.arguments)
        try:
            if notes is None:
                raise CairnError(f"the copy {row.name!r}", "its progress records are missing", "create it again")
            copy.recover(ids, note_ids)
            federated.as_of_us = copy.as_of_us
        except CairnError as error:
            log.error("%s", error, extra={"event": "federation.failed", "queue": row.name})
            federated.handle(FederationEvent.DAMAGED, str(error))

    # ---- links ------------------------------------------------------------------------------------------------------

    def _attach(self, federated: FederatedQueue, connection: OutwardEnd) -> None:
        """Request the messages of the source behind those that are here."""
        copy = federated.copy
        if not copy.line and copy.ids:
            copy.empty()
        position = ReplicaPosition(copy.line, copy.place, copy.after, federated.follower)
        asked = Attach(
            f"{self._container_id}/{federated.name}/{next(self._numbers)}",
            End(SOURCE, STREAM + federated.source),
            End(TARGET, federated.name),
            snd_settle_mode=UNSETTLED,
            properties=position.to_properties(),
        )
        federated.handle(FederationEvent.CONNECTED, "")

        def opened(channel: AttachedEnd) -> None:
            federated.handle(FederationEvent.ANSWERED)
            about = {"event": "federation.up", "queue": federated.name}
            text = "queue %s: it copies %s over connector %s"
            log.info(text, federated.name, federated.source, federated.connector, extra=about)
            channel.opened(UpstreamReceiver(self, federated, channel), None, CREDIT)

        self._request(federated, connection, asked, opened, sends=False)

    def received(self, federated: FederatedQueue, channel: AttachedEnd, content: bytes, delivery: Delivery) -> None:
        """Handle messages of the source, each a step or a part of one."""
        copy = federated.copy
        try:
            head, events = decode(content)
            copy.received(events)
            lsn = 0
            if head.flags & END:
                if full := self._core.store.full():
                    raise CairnError(f"queue {federated.name!r}", f"the store is full: {full}")
                lsn = copy.end(head)
        except CairnError as error:
            self.fail(federated, error)
            return
        federated.wait_s = FIRST_WAIT_S
        if head.flags & (END | TIME):
            federated.as_of_us = max(federated.as_of_us, head.as_of_us)
        self._core.commits.when_durable(lsn, channel.confirm, (delivery,), 1)

    def fail(self, federated: FederatedQueue, error: CairnError) -> None:
        """Handle a failure of the copy: the link is opened again."""
        channel = federated.channel
        if channel is not None:
            channel.leave(Error("amqp:internal-error", str(error)), for_good=False)
            self._end_link(federated, str(error))
            self._try_later(federated)

    def _end_link(self, federated: FederatedQueue, reason: str) -> None:
        if self._handle(federated, FederationEvent.LINK_ENDED, reason):
            about = {"event": "federation.down", "queue": federated.name}
            log.warning("queue %s: %s", federated.name, reason, extra=about)

    def _handle(self, federated: FederatedQueue, event: FederationEvent, reason: str | None = None) -> bool:
        """Change the state, and do the action; return False if *event* is ignored."""
        action = federated.handle(event, reason)
        if action in (FederationAction.DETACH, FederationAction.LEAVE):
            channel, federated.channel = federated.channel, None
            if channel is not None:
                self._by_channel.pop(channel, None)
                if action is FederationAction.LEAVE:
                    channel.leave(None, for_good=True)
            federated.copy.drop()
        elif action is FederationAction.RETRY:
            self._try_later(federated)
        return action is not None

    # ---- operations of management -----------------------------------------------------------------------------------

    def create_for(
        self, user: str, name: str, connector: str, source: str, arguments: Mapping[str, Any], done: Done
    ) -> None:
        """Create a federated queue that *user* owns; `QuotaExceeded` if they may not have another one."""
        users = self._core.users
        account = users.of(user)
        if (denial := account.queue_denial()) is not None:
            done(denial)
        else:
            self.create(name, connector, source, users.owned(arguments, user), account.counted_until_made(done))

    def create(self, name: str, connector: str, source: str, arguments: Mapping[str, Any], done: Done) -> None:
        """Follow the queue *source*; *arguments* are those of the queue *name* when it is taken over."""
        try:
            self._check_alone(name)
            if name.startswith("$"):
                raise StoreError(f"queue {name!r}", "names with a leading $ are reserved for the broker", "use another")
            policy_of(name, arguments)
            self._nodes.check_free(name)
        except StoreError as error:
            done(error)
            return
        said = {"connector": connector, "source": source, "follower": uuid4().hex}

        def noted(row: QueueRow | Exception) -> None:
            if isinstance(row, Exception):
                done(row)
                return
            self._nodes.copies[row.name] = row
            made = partial(self._core.post, self._made, row, said, done)
            self._core.store.create_queue(name, made, {**arguments, FOLLOWS: said})

        self._core.store.create_queue(notes_name(name), lambda row: self._core.post(noted, row), {NOTES_OF: name})

    def _made(self, notes: QueueRow, said: Mapping[str, str], done: Done, row: QueueRow | Exception) -> None:
        if isinstance(row, QueueRow) and row.arguments.get(FOLLOWS) != said:  # another request was faster
            is_followed = FOLLOWS in row.arguments
            row = StoreError(f"queue {row.name!r}", "it already exists", "choose another name")
            if is_followed:
                done(row)
                return
        if isinstance(row, Exception):
            self._drop(notes, lambda error: done(row))
            return
        self._nodes.copies[row.name] = row
        self._recover(row, notes, (), ())
        self._try(self.by_name[row.name])
        done(None)

    def _check_alone(self, name: str) -> None:
        """Raises `StoreError` if other brokers would have to have that queue, too."""
        if not self._members.is_alone:
            reason = "the brokers of a cluster can't follow another site yet"
            raise StoreError(f"queue {name!r}", reason, "follow with a broker of its own, or with a cluster of one")

    def resynchronize(self, federated: FederatedQueue, done: Done) -> None:
        """Drop the copy, and request everything that the source has now."""
        if not self._handle(federated, FederationEvent.RESYNCHRONIZE, ""):
            done(StoreError(f"queue {federated.name!r}", f"it is {federated.state}", "delete it, and create it again"))
            return
        lsn = federated.copy.empty()
        self._core.commits.when_durable(lsn, done, None)
        self._try(federated)

    def promote(self, federated: FederatedQueue, done: Done, *, force: bool) -> None:
        """Make the copy an ordinary queue, which follows nothing; all its messages count as delivered."""
        copy = federated.copy
        if not federated.heeds(FederationEvent.PROMOTE):
            done(StoreError(f"queue {federated.name!r}", f"it is {federated.state}", federated.reason or "wait"))
            return
        try:
            self._check_alone(federated.name)
        except StoreError as error:
            done(error)
            return
        if not copy.is_complete and not force:
            reason = "it does not have all messages of its source"
            done(StoreError(f"queue {federated.name!r}", reason, "wait until it is complete, or promote with --force"))
            return
        self._handle(federated, FederationEvent.PROMOTE)
        row = replace(federated.row, arguments=federated.arguments)

        def changed(error: Exception | None) -> None:
            if error is None:
                self._nodes.adopt(row, array("Q", copy.ids.values()))
                about = {"event": "federation.promoted", "queue": row.name}
                log.warning("queue %s: promoted as of LSN %d of %s", row.name, copy.place, copy.line, extra=about)
            self._ended(federated, FederationEvent.NOT_ENDED, done, error)

        def change() -> None:
            self._core.store.change_queue(row.id, row.arguments, lambda error: self._core.post(changed, error))

        self._core.commits.when_durable(0, change)

    def delete(self, federated: FederatedQueue, done: Done) -> None:
        """Stop the federation, and delete the copy."""
        failed = FederationEvent.DAMAGED if federated.state == BROKEN else FederationEvent.NOT_ENDED
        if not self._handle(federated, FederationEvent.DELETE):
            done(StoreError(f"queue {federated.name!r}", "it is being promoted", "wait"))
            return
        self._drop(federated.row, partial(self._ended, federated, failed, done))

    def _ended(self, federated: FederatedQueue, failed: FederationEvent, done: Done, error: Exception | None) -> None:
        """Forget a copy that was promoted or deleted; after an error it remains, and *failed* is its event."""
        if error is not None:
            self._handle(federated, failed)
        else:
            del self.by_name[federated.name]
            self._core.users.copy_went(federated.row.arguments)
            if (notes := self._nodes.copies.get(notes_name(federated.name))) is not None:
                self._drop(notes, ignore)
        done(error)

    def _drop(self, row: QueueRow, done: Done) -> None:
        """Delete a store queue that is no node, with all its messages."""

        def removed(error: Exception | None) -> None:
            if error is None:
                self._nodes.copies.pop(row.name, None)
                lsn = self._core.store.purge(row.id, self._core.clock.wall_us(), is_final=True)
                self._core.commits.when_durable(lsn, self._core.store.finish_destroy_queue, row.id, ignore)
            done(error)

        self._core.store.begin_destroy_queue(row.id, lambda error: self._core.post(removed, error))
