"""What members tell each other about queues and wiring, and all do at the same place in the order.

A change of the wiring is asked for by `change`, and made by each member when it hears of it, in its own SQL; what is
behind it waits until that is written, so that a queue is there when its first message is heard (D58). Where the disk
has no room for it, it is tried again and again: `flow` holds all meanwhile, and ends this member if others are enough.
Core only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..base.errors import DiskError, DiskFull, SqlDenied, SqlReadOnly, SqlUnreachable, StoreInUse, UnusableConnect
from . import events
from .cluster_nodes import TakenHere
from .group import MemberId
from .local_messages import NOTHING, Local

if TYPE_CHECKING:
    from .core import Core

ONLY_HERE = (DiskError, SqlDenied, SqlReadOnly, SqlUnreachable, StoreInUse, TakenHere, UnusableConnect)
"""Why one member can't do what the others do. What is wrong with a change itself, all of them say."""
TRY_AGAIN_S = 1.0
"""While the disk is full."""


class Wiring:
    """What is asked for here, and what is heard from all."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def change(self, about: dict[str, Any], done: Callable[[Any], None]) -> None:
        """Have a change of the wiring made by all; where there is no group nobody waits any more."""
        self._core.say(events.told("change", change=about), NOTHING._replace(answered=done))

    def heard(self, sender: MemberId, position: int, about: dict[str, Any], local: Local | None) -> None:
        """By a member that does what it hears."""
        core, what = self._core, about["what"]
        if what == "consume":
            core.owners.consume(sender, position, about)
        elif what == "cancel":
            core.owners.cancel(sender, position, about)
        elif what == "release-queue":
            core.owners.release_queue(sender, position, about)
        elif what == "change":
            self._change(position, about["change"], local)
            return
        elif what == "purge-wish":
            core.purging.wished(position, about)
        elif what == "purge":
            core.purging.heard(sender, position, about)
        elif what == "followed":
            core.streaming.heard(sender, position, about)
        elif what == "update-done":
            core.joining.update_done(sender, about)
        elif what == "synced":
            core.joining.synced(sender)
        if local is not None:
            core.completion.when_safe(position, local.then, always=local.always)

    def _change(self, position: int, change: dict[str, Any], local: Local | None) -> None:
        """All change their wiring now; what is behind it waits until ours is written."""
        core = self._core
        core.stall()
        of = core.completion.now

        def try_it() -> None:
            if not core.has_failed:
                core.nodes.do(change, done)

        def done(result: Any) -> None:
            if isinstance(result, DiskFull) and not core.alone:
                core.flow.unwritten = f"{result.place}: {result.reason}"
                core.broker.timers.after(TRY_AGAIN_S, try_it)
                return
            core.flow.unwritten = ""
            core.go_on()
            if isinstance(result, ONLY_HERE) and not (core.alone and isinstance(result, (DiskFull, TakenHere))):
                core.fail(f"its wiring can't follow: {result}", "mend that, and start this broker again")
                return
            if local is not None and local.answered is not None:
                answered = local.answered
                core.completion.when_safe(position, lambda: answered(result), of=of)

        try_it()
