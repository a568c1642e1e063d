"""Purges: who has a queue says what is to go, for it knows what its consumers have; all others do what it says.

Whoever is asked for one passes the wish on to all, and asks again if nothing can come of it any more: the decider left
before it said anything, or was it no longer when that was heard. All that stands on the queue at the place of the purge
goes, but what it names, and what consumers of former owners have. Core only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.errors import StoreError
from ..broker.entry import ARRIVAL_MASK
from . import events
from .group import MemberId

if TYPE_CHECKING:
    from .core import Core

Done = Callable[[int | Exception], None]


class _Wish(NamedTuple):
    name: str
    done: Done


class Purging:
    """What was asked for here, and what is heard from all."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._wishes: dict[int, _Wish] = {}
        self._number = 0

    def ask(self, name: str, done: Done) -> None:
        """*done* hears how many messages went, when that is safe."""
        self._number += 1
        self._wishes[self._number] = _Wish(name, done)
        self._say(self._number)

    def _say(self, number: int) -> None:
        core = self._core
        by = list(core.me) if core.me is not None else []
        core.say(events.told("purge-wish", queue=self._wishes[number].name, by=by, number=number))

    def members_are(self, left: tuple[MemberId, ...]) -> None:
        """Whoever was to say something may be gone."""
        if left:
            for number in self._wishes:
                self._say(number)

    def lost(self) -> None:
        self._wishes.clear()

    # ---- what is heard --------------------------------------------------------------------------------------------

    def wished(self, position: int, about: dict[str, Any]) -> None:
        core = self._core
        replica = core.owners.replicas.get(about["queue"])
        if replica is None:
            self._answer(position, about, StoreError(f"queue {about['queue']!r}", "it is gone"))
        elif core.owners.decider(replica) == core.me:
            queue = replica.queue
            core.broker.order_all_back()
            held = [entry for entry in (*queue.with_consumers(), *queue.away) if not entry.gone]
            keep = [entry.position & ARRIVAL_MASK for entry in held]
            wish = {"queue": replica.name, "by": about["by"], "number": about["number"]}
            core.say(events.told("purge", **wish, keep=keep))

    def heard(self, sender: MemberId, position: int, about: dict[str, Any]) -> None:
        core = self._core
        replica = core.owners.replicas.get(about["queue"])
        if replica is None:
            self._answer(position, about, StoreError(f"queue {about['queue']!r}", "it is gone"))
        elif core.owners.decider(replica) == sender:
            self._answer(position, about, core.messages.purge(replica, about["keep"]))
        elif self._is_ours(about):
            self._say(about["number"])

    def _is_ours(self, about: dict[str, Any]) -> bool:
        me = self._core.me
        return me is not None and tuple(about["by"]) == me and about["number"] in self._wishes

    def _answer(self, position: int, about: dict[str, Any], result: int | Exception) -> None:
        if self._is_ours(about):
            done = self._wishes.pop(about["number"]).done
            self._core.completion.when_safe(position, lambda: done(result))
