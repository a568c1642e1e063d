"""Whether this member belongs to its group: what each configuration makes of it, and what is over where it is lost.

Whoever comes in is a new member, whatever it was before, and begins with founding: so do all who find that nobody is
left who has all messages. Who is not in any more, or in a minority, owns and completes nothing, and nothing that was
under way will be heard (rule 4): its clients are sent away, with what they had back on the queues. Core only.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .group import Configuration, MemberId
from .phases import ASKING, FOUNDING, OUTSIDE, SYNCED, UPDATING

if TYPE_CHECKING:
    from .core import Core

log = logging.getLogger(__name__)


class Belonging:
    """Of one member."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.members: tuple[MemberId, ...] = ()
        self.view = 0
        self.lost_times = 0
        self._primary = False
        self._quorate = False

    @property
    def has_majority(self) -> bool:
        """Both the group and the local daemon say so."""
        return self._primary and self._quorate

    # ---- what is heard --------------------------------------------------------------------------------------------

    def quorum(self, *, quorate: bool) -> None:
        """What the local daemon believes."""
        was, self._quorate = self._quorate, quorate
        if was and not quorate:
            self._core.clients.expel()

    def configured(self, config: Configuration) -> None:
        """These are the members from here on."""
        core = self._core
        me = core.group.me
        self.view = config.view
        for member in config.left:
            core.deliver.parts.left(member)
        core.flow.left(config.left)
        mine = next((member for member in config.joined if member == me), None)
        core.addresses.configured(config)
        if config.joined:
            core.saying.somebody_came()
            core.flow.say_again()
            core.addresses.say()
        if mine is None and (core.me not in config.members or not config.primary):
            self.lost("the majority of the cluster is not there")
            return
        core.addresses.left(config.left)
        if core.phase == ASKING and core.joining.is_asked and mine is None and not config.left:
            core.joining.keep(config)
            self.members = config.members
            core.completion.members(config.members)
            return
        self.members = config.members
        if mine is not None:
            self._entered(mine, config)
            core.addresses.say()
        else:
            self._goes_on(config)

    def _entered(self, me: MemberId, config: Configuration) -> None:
        """This is a new member, whatever it was before."""
        core = self._core
        if core.me is not None:
            self.lost("it came back to the cluster as a new member")
        self._primary = config.primary
        core.owners.me = me
        core.owners.members = config.members
        for replica in core.owners.replicas.values():
            if replica.queue.gate is not None:
                replica.queue.gate.nothing_is_under_way()
        core.completion.begin(me, config.position, config.members)
        core.progress.begin(config.position)
        core.flow.begin()
        self._begin_founding()

    def _goes_on(self, config: Configuration) -> None:
        """It was in before; others have come, or left."""
        core = self._core
        core.completion.members(config.members)
        core.owners.members_are(config.members)
        if core.phase in (UPDATING, SYNCED):
            core.mark.write(core.mark.standing._replace(view=self.view, position=core.deliver.position))
        core.updater.members_are(config.members)
        core.joining.members_are(config.members)
        core.purging.members_are(config.left)
        is_asking = core.phase == ASKING and core.joining.is_asked
        if core.phase == FOUNDING or is_asking or not core.owners.synced:
            self._begin_founding()

    def _begin_founding(self) -> None:
        """Nobody is known to have all messages, or the one who was to bring them may be gone."""
        core = self._core
        core.phase = FOUNDING
        core.joining.lost()
        core.founding.begin()

    # ---- the end --------------------------------------------------------------------------------------------------

    def lost(self, why: str) -> None:
        """Out of the group, or in a minority: nothing is completed nor owned from here on (rule 4)."""
        core = self._core
        if core.me is None:
            return
        log.warning("cluster %s: clients are sent away: %s", core.name, why)
        self.lost_times += 1
        core.phase = OUTSIDE
        self._primary = False
        core.saying.lost()
        core.deliver.parts.lost()
        core.joining.lost()
        core.purging.lost()
        core.updater.lost()
        core.owners.lost()
        for action in core.completion.lost():
            action()
        for local in [*core.locals.lost(), *core.flow.lost()]:
            core.clients.lose(local)
        core.broker.transactions.lost()
        core.reports.lost()
        core.streaming.lost(why)
        core.clients.expel()
        core.waiting.begin()
