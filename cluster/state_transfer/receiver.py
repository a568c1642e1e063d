"""Receives the state of the other members while these continue to work (D18 to D20; rules 9 to 12).

1. The joining member multicasts `state`; a synced member answers with `follow`. From then on the record of the joining
   member marks its store as incomplete.
2. The joining member multicasts `sync`. The position of that event in the order is its *cut*: it receives all events
   behind the cut itself, and the donor brings the messages from before it.
3. The donor multicasts the wiring as of the cut, in one event (`snapshot`), then each queue from back to front:
   messages that consumers take meanwhile need not be brought. These are ordinary events of the group, so they are
   ordered among those that they concern. A dequeue that is delivered before its message leaves a tombstone.
4. If the joining member has messages of a queue, the donor multicasts digests first, and brings only the messages that
   the joining member lacks (`kept_messages`). The joining member drops its other messages at the end. If the donor has
   applied all events that the joining member ever applied, consumers took these messages meanwhile; else they are
   backed up first (`divergent_state`).

The *donor* is the synced member that follows the joining one in the order of nodes, at the cut. If it leaves, the next
one continues with the incomplete queues, under a new number, and only for messages below the cut. A joining member
without the wiring does not know the synced ones: if any member leaves, it starts again with `state`. The joining member
serves no clients until all its queues are complete. Core only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..group.group_events import Configuration
from ..group.member_id import MemberId
from ..health.clock_skew import ClockSkew
from ..kernel import events
from ..kernel.context import MemberContext
from ..kernel.control_messages import ControlMessage
from ..kernel.inbox import ReceivedEvent
from ..kernel.phases import BOOTSTRAPPING, BUFFERING, DISCARDING, REQUESTING, SYNCHRONIZED, TRANSFERRING, PhaseEvent
from ..kernel.progress_record import Standing, dict_of
from ..nodes.cluster_nodes import ClusterNodes, Renew
from ..replication.message_handler import MessageHandler
from ..replication.ownership_handler import QueueOwnerHandler
from ..replication.replica import Replica
from .divergent_state import DivergentState
from .kept_messages import KeptMessages, Take
from .sender import TransferSender, donor_for

log = logging.getLogger(__name__)

FOREIGN = "move its store directory away, or give it another --cluster-name"
"""The remedy for a store that belongs to another cluster."""
PROGRESS_S = 10.0
"""The interval between log entries about the transfer."""


@dataclass(eq=False, repr=False)
class TransferReceiver:
    """The receiving side of a state transfer, and the events about transfers that all members note."""

    _context: MemberContext
    _owners: QueueOwnerHandler
    _nodes: ClusterNodes
    _messages: MessageHandler
    _sender: TransferSender
    _divergent: DivergentState
    _clock_skew: ClockSkew
    _renew: Renew

    def __post_init__(self) -> None:
        self.kept_messages = KeptMessages(self._context, self._owners.replicas, self.compare)
        self._kept: list[Any] = []
        self.requests = 0
        """The number of requests for a transfer by this member."""
        self.wanted = 0
        """The number of messages to receive, as counted at the cut."""
        self.received = 0
        """The number of messages that were received."""
        self.queues = 0
        """The number of replicated queues at the cut."""
        self._logged_s = 0.0
        self._update = 0
        """The number of the transfer: the unique position of the `sync` event in the order."""
        self._donor: MemberId | None = None
        self._unfinished: set[str] = set()
        self._is_known = False
        """True if the donor has applied all events that were ever applied here."""
        self._left: list[tuple[Replica, list[int]]] | None = None
        """The queues and IDs of messages that the other members do not have, which are to be dropped."""
        self._awaited: tuple[int, Callable[[], None]] | None = None
        """An LSN, and the step of this transfer that follows when it is durable."""

    @property
    def unfinished(self) -> int:
        """The number of incomplete queues."""
        return len(self._unfinished)

    def progress(self) -> str:
        """Describes the progress of the transfer."""
        node = "" if self._donor is None else f" from node {self._donor.node}"
        queues = f"{self.unfinished} of {self.queues} queues are not complete"
        kept = self.kept_messages.kept
        whence = f" ({kept:,} of them were on this member's disk)" if kept else ""
        return f"{self.received:,} of {max(self.wanted, self.received):,} messages received{node}{whence}; {queues}"

    def lost(self) -> None:
        self.received = self.wanted = self.queues = 0
        self._kept.clear()
        self._donor = self._awaited = self._left = None
        self._unfinished.clear()
        self.kept_messages.lost()

    # ---- on synced members ----------------------------------------------------------------------------------------

    def asked(self, message: ControlMessage) -> None:
        """Handles the request of a joining member for a transfer, or for another donor to continue one."""
        sender, position, about = message
        state = self._context.state
        self._context.commits.follows(sender, position, anew=about["queues"] is None)
        donor = donor_for(state.synced, sender)
        if sender == state.me:
            self._begin(donor, about, position & 0xFFFFFFFF)
        elif donor == state.me and state.phase == SYNCHRONIZED:
            self._sender.serve(sender, position & 0xFFFFFFFF, about)

    def synced(self, message: ControlMessage) -> None:
        """Notes that *sender* has all messages."""
        sender = message.sender
        state, commits = self._context.state, self._context.commits
        commits.is_complete(sender)
        if sender == state.me:
            self.become_synced(PhaseEvent.COMPLETED, Standing(True, state.epoch, state.view, commits.done))
        self._owners.now_synced(sender)

    def become_synced(self, event: PhaseEvent, standing: Standing) -> None:
        """Records that this member has all messages, because of *event*."""
        if self._context.state.handle(event) != SYNCHRONIZED:
            return
        self._context.record.received_before = {}  # at this position the store is equal to those of the others
        self._context.record.write(standing)
        about = {"event": "cluster.synchronized"}
        log.info("cluster %s: this member has all messages", self._context.state.name, extra=about)

    # ---- on the joining member ------------------------------------------------------------------------------------

    def follow(self, message: ControlMessage) -> None:
        """Begins a transfer, at the invitation of *sender*."""
        sender, _, about = message
        state = self._context.state
        if state.phase != BOOTSTRAPPING or state.me is None or tuple(about["to"]) != state.me:
            return
        self._clock_skew.received(sender.node, about["clock_us"])
        record = self._context.record
        state.epoch = about["epoch"]
        if record.cluster and record.cluster != about["cluster"]:
            reason = f"this store belongs to another cluster, {record.cluster}, not to {about['cluster']}"
            self._context.fail(reason, FOREIGN)
        elif not record.cluster and self._nodes.has_own_wiring():
            self._context.fail("this store has replicated queues that do not belong to the cluster", FOREIGN)
        else:
            self.wipe(about["cluster"])

    def wipe(self, cluster: str) -> None:
        """Invalidates the replicated state of this store, and requests a transfer.

        The progress record is marked first, so that no member accepts such a store as a source.
        """
        state, record = self._context.state, self._context.record
        if state.handle(PhaseEvent.OUTRANKED) != DISCARDING:
            return
        record.cluster = cluster
        record.write(max(record.standing._replace(synced=False), Standing(False, state.epoch, state.view, 0)))
        self._when_durable(self._wiped)

    def _when_durable(self, step: Callable[[], None]) -> None:
        """Takes *step* when all records that exist now are durable."""
        self._awaited = self._context.store.next_lsn, step
        self.durable()

    def durable(self) -> None:
        """Takes the step that waits for a durable LSN; called when it may have moved."""
        if self._awaited is not None and self._context.store.durable_lsn >= self._awaited[0]:
            (_, step), self._awaited = self._awaited, None
            step()

    def _wiped(self) -> None:
        for replica in self._owners.replicas.values():
            replica.take_back()
        self._ask(PhaseEvent.WIPED)

    def _change_all(self, changes: list[dict[str, Any]], then: Callable[[], None]) -> None:
        """Applies *changes* in sequence, and then calls *then*. Thousands of them may be answered at once."""
        left, answers = iter(changes), list[Any]()

        def done(result: Any) -> None:
            answers.append(result)
            while len(answers) == 1:  # else this call is made by the loop, which continues
                if isinstance(result := answers[0], Exception):
                    reason = f"a change of the wiring failed: {result}"
                    self._context.fail(reason, "correct the cause, and start this broker again")
                    return
                change = next(left, None)
                if change is None:
                    self._context.inbox.resume()
                    then()
                    return
                self._nodes.do(change, done)
                del answers[0]

        done(None)

    def _ask(self, event: PhaseEvent) -> None:
        """Multicasts a request for a transfer, because of *event*."""
        if self._context.state.handle(event) != REQUESTING:
            return
        self.requests += 1
        kept, received = self.kept_messages.offer(), self._context.record.received()
        self._context.broadcaster.send_control("sync", wish=self.requests, queues=None, kept=kept, heard=received)

    def ask_again(self) -> None:
        """Requests a transfer with a new cut; all answers so far, and those in flight, are ignored."""
        self._kept.clear()
        self._ask(PhaseEvent.MISSED)

    def _begin(self, donor: MemberId | None, about: dict[str, Any], update: int) -> None:
        """Notes the cut: the request of this member was delivered."""
        if about["wish"] != self.requests:
            return
        if about["queues"] is None:  # the donor is not known here yet
            if self._context.state.handle(PhaseEvent.CUT) == BUFFERING:
                self._update = update
                self._kept.clear()
            return
        if self._context.state.phase != TRANSFERRING:
            return
        self._update = update
        self._donor = donor
        for name in about["queues"]:  # another donor continues: it brings the messages of these queues again
            replica = self._owners.replicas.get(name)
            if replica is not None:
                self.kept_messages.put_back(replica, self._messages.begin_again(replica))

    def keep(self, received: ReceivedEvent | Configuration) -> None:
        self._kept.append(received)

    def members_changed(self, config: Configuration) -> None:
        """Requests another donor if the present one left."""
        if self._donor is None or self._donor in config.members:
            return
        self._donor = None
        if self._context.state.phase == TRANSFERRING and self._context.state.synced:
            self.requests += 1
            self._update = 0
            replicas = self._owners.replicas
            queues = {name: replicas[name].base for name in self._unfinished if name in replicas}
            kept = [name for name in self.kept_messages.names() if name in queues]
            self._context.broadcaster.send_control("sync", wish=self.requests, queues=queues, kept=kept, heard=None)

    def snapshot(self, message: ControlMessage) -> None:
        """Makes the wiring like that of *sender* at the cut."""
        sender, _, about = message
        state = self._context.state
        if state.phase != BUFFERING or tuple(about["to"]) != state.me or about["update"] != self._update:
            return
        state.epoch = about["epoch"]
        self._donor = sender
        self._context.inbox.stall()
        self._change_all(self._nodes.outdated(about["wiring"]), partial(self._cleared, about))

    def _cleared(self, about: dict[str, Any]) -> None:
        """Makes the wiring of the snapshot, after all other wiring was removed."""
        if self._context.state.phase != BUFFERING:
            return
        self._context.inbox.stall()
        renewed = [self._renew(queue).name for queue in self._nodes.like(about["wiring"])]
        self._change_all(about["wiring"], partial(self._wired, about, renewed))

    def _wired(self, about: dict[str, Any], renewed: list[str]) -> None:
        """Applies the snapshot, now that its queues exist, and then the kept events.

        *renewed*: the queues that existed here before.
        """
        state, commits, owners = self._context.state, self._context.commits, self._owners
        if state.handle(PhaseEvent.WIRED) != TRANSFERRING:
            return
        self._context.record.write(Standing(False, state.epoch, state.view, commits.done))
        state.synced = {MemberId(*member) for member in about["synced"]}
        for member, floor in about["floors"]:
            commits.floors.setdefault(MemberId(*member), floor)
        owners.past = about["past"]
        commits.inherit(dict_of(about["heard"]))
        self._is_known = about["knows"]
        for name, first, last, owner, interested, acquired, (purged_below, kept) in about["queues"]:
            replica = owners.replicas[name]
            replica.begin_update(first, last)
            replica.owner = None if owner is None else MemberId(*owner)
            replica.interested = {MemberId(*member) for member in interested}
            replica.acquired = {position: MemberId(*member) for position, member in acquired}
            replica.purged_below, replica.kept = purged_below, frozenset(kept)
            owners.decide(replica)
        for name, line in about["lines"].items():
            owners.replicas[name].line = line
        for name, keys in about["remembered"].items():
            limits = owners.replicas[name].queue.limits
            if limits is not None and limits.duplicates is not None:
                transient = {key.encode("latin-1") for key in about.get("transient", {}).get(name, ())}
                limits.duplicates.begin_with([key.encode("latin-1") for key in keys], transient)
        self._unfinished = {name for name, *_ in about["queues"]}
        self.queues, self.wanted = len(self._unfinished), about["messages"]
        self.received, self._logged_s = 0, self._context.clock.monotonic_s()
        text, started = "cluster %s: receiving %d messages on %d queues", {"event": "cluster.transfer-started"}
        log.info(text, state.name, self.wanted, self.queues, extra=started)
        self.kept_messages.begin({name: owners.replicas[name] for name in renewed})
        kept, self._kept = self._kept, []
        self._context.inbox.put_back(kept)
        self._check_completeness()

    def front(self, sender: MemberId, event: events.FrontEvent) -> None:
        """Adds messages from before the cut; they arrive in descending order."""
        if self._context.state.phase != TRANSFERRING or event.update != self._update or sender != self._donor:
            return
        replica = self._owners.replicas.get(event.name)
        if replica is None:
            return
        for position, failures, message in zip(event.positions, event.failures, event.messages, strict=True):
            self._messages.put_front(replica, position, failures, message)
        self.received += len(event.positions)
        now_s = self._context.clock.monotonic_s()
        if now_s - self._logged_s >= PROGRESS_S:
            self._logged_s = now_s
            about = {"event": "cluster.transfer-progress"}
            log.info("cluster %s: %s", self._context.state.name, self.progress(), extra=about)

    def digests(self, sender: MemberId, event: events.DigestsEvent) -> None:
        """Compares digests of messages from before the cut with the messages of this member."""
        if self._context.state.phase == TRANSFERRING and event.update == self._update and sender == self._donor:
            self.kept_messages.received(event)

    def compare(self, event: events.DigestsEvent, take: Take | None) -> None:
        """Keeps the messages of this store, found by *take*, and multicasts the lacking positions."""
        replica = self._owners.replicas.get(event.name)
        lacking: list[int] = []
        for position, failures, digest in zip(event.positions, event.failures, event.digests, strict=True):
            if replica is None or not self._messages.is_awaited(replica, position):
                continue
            entry = None if take is None else take(digest, position)
            if entry is None:
                lacking.append(position)
            else:
                self._messages.keep_front(replica, position, failures, entry)
                self.kept_messages.kept += 1
                self.received += 1
        self._context.broadcaster.send_control(
            "lacking", update=event.update, queue=event.name, number=event.number, positions=lacking
        )

    def update_done(self, message: ControlMessage) -> None:
        """Completes a queue."""
        sender, _, about = message
        if self._context.state.phase != TRANSFERRING or about["update"] != self._update or sender != self._donor:
            return
        replica = self._owners.replicas.get(about["queue"])
        if replica is not None:
            replica.integrate()
        self._unfinished.discard(about["queue"])
        self._check_completeness()

    def _check_completeness(self) -> None:
        self._unfinished &= self._owners.replicas.keys()
        if self._unfinished or self._left is not None:
            return
        self._donor = None
        self._left = left = self.kept_messages.left()
        log.info(
            "cluster %s: the transfer is complete: %d of %d messages were on its own disk; %d that the others do not "
            "have are dropped%s", self._context.state.name, self.kept_messages.kept, self.received,
            sum(len(ids) for _, ids in left), ": they were consumed meanwhile" if left and self._is_known else "",
            extra={"event": "cluster.transfer-completed"},
        )  # fmt: skip
        if left and not self._is_known and self._divergent.aside is not None:
            keep, drop = self._divergent.keep, partial(self._drop_left, left)
            self._when_durable(lambda: keep(sum(len(ids) for _, ids in left), drop))
        else:
            self._drop_left(left)

    def _drop_left(self, left: list[tuple[Replica, list[int]]] | None) -> None:
        """Drops the former messages that the others do not have; afterwards this member is complete."""
        if left is None or left is not self._left or self._context.state.phase != TRANSFERRING:  # the member left
            return
        while left:
            replica, ids = left[-1]
            if self._owners.replicas.get(replica.name) is not replica:
                left.pop()
                continue
            ids[:] = self._messages.drop_stored(replica, ids)
            if ids:
                self._context.reader.next_step(partial(self._drop_left, left))
                return
            left.pop()
        self._when_durable(partial(self._context.broadcaster.send_control, "synced"))

    def make_room(self) -> None:
        """Drops the kept messages that no digest named so far, without a backup, because the disk is full."""
        if self._context.state.phase == TRANSFERRING and self._left is None and self.kept_messages.names():
            dropped = 0
            for replica, ids in self.kept_messages.give_up():
                dropped += len(ids)
                while ids:
                    ids = self._messages.drop_stored(replica, ids)
            log.warning(
                "cluster %s: the disk is full: %d former messages of this member are dropped without a backup; "
                "messages that other members have are received again", self._context.state.name, dropped,
                extra={"event": "cluster.divergent-state-dropped"},
            )  # fmt: skip

    def purged(self, replica: Replica) -> None:
        """Forgets this member's former messages of a queue that was purged."""
        self.kept_messages.purged(replica.name)
        for found, ids in self._left or ():
            if found is replica:
                ids.clear()
