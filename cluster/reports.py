"""Reports about all members at once: one asks, each answers with what its management tells, within some time.

Wishes and answers are events like others, and change nothing; members answer as soon as they are in the group, also
while they are brought up to date. Core only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..broker.cluster import Gathered, Report
from . import events
from .group import MemberId

if TYPE_CHECKING:
    from .core import Core


class _Gathering:
    """What was asked for here."""

    def __init__(self, members: tuple[MemberId, ...], missing: int, done: Callable[[Gathered], None]) -> None:
        self.members = members
        self.missing = missing
        self.answers: dict[str, Report] = {}
        self.done = done

    def gathered(self) -> Gathered:
        silent = [str(member) for member in self.members if str(member) not in self.answers]
        return Gathered(self.answers, silent, self.missing)


class Reports:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.reporter: Callable[[Report], Report] = lambda asked: {}
        """Tells about this member."""
        self._gatherings: dict[int, _Gathering] = {}
        self._number = 0

    def gather(self, asked: Report, limit_s: float, done: Callable[[Gathered], None]) -> None:
        """*done* hears what members told, as soon as all have, or that time is over."""
        core = self._core
        self._number += 1
        number = self._number
        self._gatherings[number] = _Gathering(core.members, core.size - len(core.members), done)
        core.broker.timers.after(limit_s, self._finish, number)
        by = list(core.me) if core.me is not None else []
        core.say(events.told("report-wish", by=by, number=number, asked=asked))

    def _finish(self, number: int) -> None:
        gathering = self._gatherings.pop(number, None)
        if gathering is not None:
            gathering.done(gathering.gathered())

    def lost(self) -> None:
        for number in [*self._gatherings]:
            self._finish(number)

    def wished(self, about: dict[str, Any]) -> None:
        core = self._core
        core.say(events.told("report", to=about["by"], number=about["number"], told=self.reporter(about["asked"])))

    def told(self, sender: MemberId, about: dict[str, Any]) -> None:
        gathering = self._gatherings.get(about["number"])
        me = self._core.me
        if gathering is None or me is None or tuple(about["to"]) != me:
            return
        gathering.answers[str(sender)] = about["told"]
        if len(gathering.answers) >= len(gathering.members):
            self._finish(about["number"])
