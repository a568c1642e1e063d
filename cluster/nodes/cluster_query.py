"""Reports about all members: one member asks, each answers with its management data, within a time limit.

Queries and answers are ordinary events, and change nothing; members answer as soon as they are in the group, also
during a state transfer. Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...broker.nodes.replication_port import Gathered, Report
from ..kernel.context import MemberContext
from ..kernel.control_messages import ControlMessage


class _Gathering(NamedTuple):
    """A query of this member, and the answers so far."""

    members: Sequence[str]
    missing: int
    done: Callable[[Gathered], None]
    answers: dict[str, Report]


class ClusterQueries:
    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self.reporter: Callable[[Report], Report] = lambda asked: {}
        """Returns the report about this member."""
        self._gatherings: dict[int, _Gathering] = {}
        self._number = 0

    def gather(self, asked: Report, limit_s: float, done: Callable[[Gathered], None]) -> None:
        """*done* gets the reports, as soon as all members have answered, or the time is over."""
        state = self._context.state
        self._number += 1
        number = self._number
        self._gatherings[number] = _Gathering([*map(str, state.members)], state.size - len(state.members), done, {})
        self._context.timers.after(limit_s, self._finish, number)
        self._context.broadcaster.send_control("report-wish", by=state.me or (), number=number, asked=asked)

    def _finish(self, number: int) -> None:
        if number in self._gatherings:
            members, missing, done, answers = self._gatherings.pop(number)
            done(Gathered(answers, [member for member in members if member not in answers], missing))

    def lost(self) -> None:
        for number in [*self._gatherings]:
            self._finish(number)

    def wished(self, message: ControlMessage) -> None:
        """Answers a query of *sender*."""
        about = message.about
        answer = self.reporter(about["asked"])
        self._context.broadcaster.send_control("report", to=about["by"], number=about["number"], told=answer)

    def record_answer(self, message: ControlMessage) -> None:
        """Records the answer of *sender*."""
        sender, _, about = message
        gathering = self._gatherings.get(about["number"])
        me = self._context.state.me
        if gathering is None or me is None or tuple(about["to"]) != me:
            return
        gathering.answers[str(sender)] = about["told"]
        if len(gathering.answers) >= len(gathering.members):
            self._finish(about["number"])
