"""How a member that comes gets what the others have, while these go on (D18 to D20; rules 9 to 12).

newcomer: state -> a synced member: follow -> it drops what it had -> sync, and that place in the order is its *cut*:
what comes behind it, it hears itself; what stood before, the updater brings: the wiring as it was at the cut, in one
event, then each queue from its back to its front, so that what consumers take meanwhile need not be brought. Updates
are events of the group like others: that orders them among what they concern, and a dequeue that is heard before its
message is a tombstone.

*The updater* is the synced member that follows the newcomer in the order of nodes, at the cut. If it leaves, the next
one goes on with the queues that are not whole, under a new number; only what stands below the cut is asked for. Who has
no wiring yet does not know who is synced: if anybody leaves, it begins anew, with its state.
The newcomer serves nobody until all its queues are whole. Core only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from . import events
from .founding import FOREIGN
from .group import Configuration, MemberId
from .mark import Standing
from .phases import ASKING, FOUNDING, SYNCED, UPDATING, WIPING
from .updater import updater_for

if TYPE_CHECKING:
    from .core import Core
    from .deliver import Heard

log = logging.getLogger(__name__)


class Joining:
    """The newcomer's part, and what all note down of newcomers."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.is_asked = False
        """Our sync was heard: what comes behind it is kept until the wiring is there."""
        self._kept: list[Any] = []
        self.wishes = 0
        """How often we asked."""
        self._update = 0
        """The number of the update: the place of our sync in the order, so no other has it."""
        self._updater: MemberId | None = None
        self._unfinished: set[str] = set()
        self._keep_lsn: int | None = None
        """When this is durable, what is here can be set aside."""
        self._wipe_lsn: int | None = None
        self._whole_lsn: int | None = None
        """When this is durable, all that was brought is."""

    @property
    def unfinished(self) -> int:
        """Queues that are not whole here."""
        return len(self._unfinished)

    def lost(self) -> None:
        self.is_asked = False
        self._kept.clear()
        self._updater = self._keep_lsn = self._wipe_lsn = self._whole_lsn = None
        self._unfinished.clear()

    # ---- what synced members do -----------------------------------------------------------------------------------

    def newcomer(self, sender: MemberId) -> None:
        """Somebody came and says how far its store had come: it is to follow."""
        core = self._core
        if core.phase == SYNCED and updater_for(core.owners.synced, sender) == core.me:
            about = {"cluster": core.mark.cluster, "epoch": core.mark.standing.epoch}
            core.say(events.told("follow", to=list(sender), clock_us=core.clock.wall_us(), **about))

    def asked(self, sender: MemberId, position: int, about: dict[str, Any]) -> None:
        """A newcomer's cut, or its wish that somebody else goes on."""
        core = self._core
        core.completion.follows(sender, position, anew=about["queues"] is None)
        updater = updater_for(core.owners.synced, sender)
        if sender == core.me:
            self._begin(updater, about, position & 0xFFFFFFFF)
        elif updater == core.me and core.phase == SYNCED:
            core.updater.serve(sender, position & 0xFFFFFFFF, about["queues"])

    def synced(self, sender: MemberId) -> None:
        core = self._core
        core.completion.is_whole(sender)
        if sender == core.me:
            core.synced(Standing(True, core.epoch, core.view, core.completion.done))
        core.owners.now_synced(sender)

    # ---- what the newcomer does -----------------------------------------------------------------------------------

    def follow(self, sender: MemberId, about: dict[str, Any]) -> None:
        core = self._core
        if core.phase != FOUNDING or core.me is None or tuple(about["to"]) != core.me:
            return
        core.clocks.heard(sender, about["clock_us"])
        mark = core.mark
        core.epoch = about["epoch"]
        if mark.cluster and mark.cluster != about["cluster"]:
            core.fail(f"this store is of another cluster, {mark.cluster}, not of {about['cluster']}", FOREIGN)
        elif not mark.cluster and core.nodes.own_wiring():
            core.fail("this store has queues of its own, and the cluster has others", FOREIGN)
        else:
            self.wipe(about["cluster"])

    def wipe(self, cluster: str) -> None:
        """Drop what is replicated here, which is set aside before; then ask for what there is.

        The mark says so before anything goes: such a store is nobody's to learn from.
        """
        core = self._core
        core.phase = WIPING
        self._whole_lsn = None
        core.mark.cluster = cluster
        if core.losers.has_anything():
            self._keep_lsn = core.broker.store.next_lsn
            self.durable()
        else:
            self._wipe()

    def _kept_aside(self) -> None:
        """Or there is no room for it; if the group was lost meanwhile, it is done again."""
        if self._core.phase == WIPING and self._keep_lsn is None and self._wipe_lsn is None:
            self._wipe()

    def _wipe(self) -> None:
        core = self._core
        core.mark.write(max(core.mark.standing._replace(synced=False), Standing(False, core.epoch, core.view, 0)))
        self._wipe_lsn = core.broker.store.next_lsn
        self.durable()

    def durable(self) -> None:
        """The store's durable LSN has moved, perhaps."""
        core = self._core
        if self._whole_lsn is not None and core.broker.store.durable_lsn >= self._whole_lsn:
            self._whole_lsn = None
            core.say(events.told("synced"))
        if self._keep_lsn is not None and core.broker.store.durable_lsn >= self._keep_lsn:
            self._keep_lsn = None
            core.losers.keep(self._kept_aside)
        if self._wipe_lsn is not None and core.broker.store.durable_lsn >= self._wipe_lsn:
            self._wipe_lsn = None
            for replica in core.owners.replicas.values():
                core.clients.take_back(replica)
            core.stall()
            self._change_all(core.nodes.own_wiring(but_bound=True), self._ask)

    def _change_all(self, changes: list[dict[str, Any]], then: Callable[[], None]) -> None:
        """One after the other."""
        if not changes:
            self._core.go_on()
            then()
            return

        def done(result: Any) -> None:
            if isinstance(result, Exception):
                self._core.fail(f"its wiring can't follow: {result}", "mend that, and start this broker again")
            else:
                self._change_all(changes[1:], then)

        self._core.nodes.do(changes[0], done)

    def _ask(self) -> None:
        core = self._core
        if core.phase not in (WIPING, ASKING):
            return
        core.phase = ASKING
        self.wishes += 1
        core.say(events.told("sync", wish=self.wishes, queues=None))

    def ask_again(self) -> None:
        """What was answered so far, or will be, is of no use: with a new cut."""
        self.is_asked = False
        self._kept.clear()
        self._ask()

    def _begin(self, updater: MemberId | None, about: dict[str, Any], update: int) -> None:
        """Our own sync was heard."""
        if about["wish"] != self.wishes or self._core.phase not in (ASKING, UPDATING):
            return
        self._update = update
        if about["queues"] is None:  # who will answer is not known here yet
            self.is_asked = True
            self._kept.clear()
            return
        self._updater = updater
        for name in about["queues"]:  # somebody else goes on: what the last one brought of these comes again
            replica = self._core.owners.replicas.get(name)
            if replica is not None:
                self._core.messages.drop(replica, replica.begin_again())

    def keep(self, heard: Heard | Configuration) -> None:
        self._kept.append(heard)

    def members_are(self, members: tuple[MemberId, ...]) -> None:
        """If the updater is gone, ask the next one."""
        core = self._core
        if self._updater is None or self._updater in members:
            return
        self._updater = None
        if core.phase == UPDATING and core.owners.synced:
            self.wishes += 1
            self._update = 0
            replicas = core.owners.replicas
            queues = {name: replicas[name].base for name in self._unfinished if name in replicas}
            core.say(events.told("sync", wish=self.wishes, queues=queues))

    def snapshot(self, sender: MemberId, about: dict[str, Any]) -> None:
        core = self._core
        if core.phase != ASKING or tuple(about["to"]) != core.me or about["update"] != self._update:
            return
        core.epoch = about["epoch"]
        self._updater = sender
        core.stall()
        wiring = about["wiring"]
        self._change_all([*core.nodes.left_over(wiring), *wiring], partial(self._wired, about))

    def _wired(self, about: dict[str, Any]) -> None:
        """The queues are there: from here on what is heard is done."""
        core = self._core
        if core.phase != ASKING:
            return
        core.phase = UPDATING
        core.mark.write(Standing(False, core.epoch, core.view, core.completion.done))
        self.is_asked = False
        owners = core.owners
        owners.synced = {MemberId(*member) for member in about["synced"]}
        for member, floor in about["floors"]:
            core.completion.floors.setdefault(MemberId(*member), floor)
        owners.past = about["past"]
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
            gate = owners.replicas[name].queue.gate
            if gate is not None and gate.duplicates is not None:
                transient = {key.encode("latin-1") for key in about.get("transient", {}).get(name, ())}
                gate.duplicates.begin_with([key.encode("latin-1") for key in keys], transient)
        self._unfinished = {name for name, *_ in about["queues"]}
        kept, self._kept = self._kept, []
        core.hear_again(kept)
        self._look_whether_whole()

    def front(self, sender: MemberId, event: events.Front) -> None:
        """Messages from before the cut, the last ones first."""
        core = self._core
        if core.phase != UPDATING or event.update != self._update or sender != self._updater:
            return
        replica = core.owners.replicas.get(event.name)
        if replica is None:
            return
        for position, failures, message in zip(event.positions, event.failures, event.messages, strict=True):
            core.messages.put_front(replica, position, failures, message)

    def update_done(self, sender: MemberId, about: dict[str, Any]) -> None:
        core = self._core
        if core.phase != UPDATING or about["update"] != self._update or sender != self._updater:
            return
        replica = core.owners.replicas.get(about["queue"])
        if replica is not None:
            replica.integrate()
        self._unfinished.discard(about["queue"])
        self._look_whether_whole()

    def _look_whether_whole(self) -> None:
        core = self._core
        self._unfinished &= core.owners.replicas.keys()
        if not self._unfinished and self._whole_lsn is None:
            self._updater = None
            self._whole_lsn = core.broker.store.next_lsn
            self.durable()
