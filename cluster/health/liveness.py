"""Detects silent members, expels them, and limits the time for which this member may dispatch.

Each member multicasts at least once a second (`group.HEARTBEAT_S`). A member that the others do not receive, although
they receive their own events, hangs or is stopped while its corosync runs: no other member can dispatch the queues that
it leads. After `limit_s` one of the others requests its expulsion; the group orders that event among all others.

Lease: a member dispatches only for half of `limit_s` after it *sent* its last heartbeat that came back. The expulsion
names the last frame of the silent member, and is void if a later frame precedes it. So an expelled member has no valid
lease by then, and gets none before the expulsion is delivered to it (decision 74).

Silence is measured in heartbeats of this member that came back, not in clock time: a member that was stopped itself, or
whose corosync was, accuses no other member of the silence in between. Core only.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import inf

from ..group.group import HEARTBEAT_S
from ..group.group_events import Configuration
from ..group.member_id import MemberId
from ..kernel.context import MemberContext
from ..kernel.local_messages import NOTHING
from ..replication.replica import Replica

log = logging.getLogger(__name__)
_SILENT = {"event": "cluster.member-silent"}

SILENCE_S = 10.0
"""The default of --cluster-silence."""
AGAIN_S = 60.0
"""The warning that a silent member cannot be expelled is repeated after so long."""
PER_MESSAGE_S = 5e-6
"""The extension of the limit for each message on the queues: a donor is silent while it lists the messages to send."""


class Liveness:
    """The silent members, as one member counts them, and its own lease."""

    def __init__(self, context: MemberContext, replicas: Mapping[str, Replica], limit_s: float) -> None:
        self._context = context
        self._replicas = replicas
        self.limit_s = limit_s
        self.expulsions = 0
        """The number of members that were expelled, as seen here."""
        self._turn = 0
        self.lost()

    @property
    def _interval_s(self) -> float:
        return min(HEARTBEAT_S, self.limit_s / 10)

    @property
    def longest_silence_s(self) -> float:
        """The longest silence of another member."""
        return max([*self._silent.values()], default=0) * self._interval_s

    @property
    def silent_members(self) -> int:
        """The number of members that a warning was logged about, and that have been silent since."""
        return len(self._warned)

    def may_dispatch(self, now_s: float) -> bool:
        """Returns whether this member has a valid lease: no other one can have learned of its expulsion."""
        return now_s - self._lease_from_s <= self.limit_s / 2

    def begin(self) -> None:
        """Begins to count silence in a new membership."""
        self.lost()
        if not self._context.state.is_alone:
            self._say()
            self._again()

    def lost(self) -> None:
        """Forgets what was counted in a membership that ended."""
        self._turn += 1
        self._silent: dict[MemberId, int] = {}
        """The number of intervals in which this member was received and the other was not, by member."""
        self._warned: set[MemberId] = set()
        self._kept_s: dict[MemberId, float] = {}
        """By silent member that cannot be expelled: when that was logged last."""
        self._said_s: float | None = None
        """The time at which the heartbeat in flight was sent; None without one."""
        self._lease_from_s = -inf

    def came_back(self) -> None:
        """Renews the lease: the heartbeat in flight was delivered here, and all that precedes it in the order."""
        if self._said_s is not None:
            self._lease_from_s, self._said_s = self._said_s, None

    def _say(self) -> None:
        if self._said_s is None:
            self._said_s = self._context.clock.monotonic_s()
            self._context.broadcaster.send_control("alive", NOTHING)

    def _again(self) -> None:
        self._context.timers.after(self._interval_s, self._tick, self._turn)

    def _tick(self, turn: int) -> None:
        state = self._context.state
        if turn != self._turn or state.me is None:
            return
        self._again()
        self._say()
        received = self._context.group.take_signs()
        if state.me not in received:  # no other member can be considered silent
            return
        for member in state.members:
            if member == state.me or member in received:
                self._silent.pop(member, None)
                self._speaks_again(member)
            else:
                self._silent[member] = self._silent.get(member, 0) + 1
        self._silent = {member: count for member, count in self._silent.items() if member in state.members}
        self._warned &= {*state.members}
        self._kept_s = {member: at_s for member, at_s in self._kept_s.items() if member in self._silent}
        for member, count in self._silent.items():
            self._judge(member, count)

    def _speaks_again(self, member: MemberId) -> None:
        if member in self._warned:
            self._warned.discard(member)
            text = "cluster %s: node %d is no longer silent"
            log.warning(text, self._context.state.name, member.node, extra={"event": "cluster.member-answers"})

    def _judge(self, member: MemberId, count: int) -> None:
        ticks = round(self.limit_s / self._interval_s) - 1
        if count >= ticks // 3 and member not in self._warned:
            self._warned.add(member)
            if self._is_majority_without_one:
                log.warning(
                    "cluster %s: node %d (process %d) is silent for %.1f s; consumers of the %d queues "
                    "that it leads get nothing meanwhile. After %.0f s it is expelled and the next members lead them. "
                    "See its machine and its log: is the process stopped, or does its disk hang?",
                    self._context.state.name, member.node, member.pid, count * self._interval_s, self._led_by(member),
                    self.limit_s, extra=_SILENT,
                )  # fmt: skip
            else:
                self._keep(member, count)
        if count >= ticks:
            messages = sum(replica.queue.messages for replica in self._replicas.values())
            if count < ticks + messages * PER_MESSAGE_S / self._interval_s:
                return
            if self._is_majority_without_one:
                self._context.group.expel(member)
            elif self._context.clock.monotonic_s() - self._kept_s.get(member, -inf) >= AGAIN_S:
                self._keep(member, count)

    @property
    def _is_majority_without_one(self) -> bool:
        """True if the rest is a majority without one member, by the rule of the group."""
        return 2 * (len(self._context.state.members) - 1) > self._context.state.size

    def _led_by(self, member: MemberId) -> int:
        return sum(replica.owner == member for replica in self._replicas.values())

    def _keep(self, member: MemberId, count: int) -> None:
        """Logs that a silent member cannot be expelled."""
        state = self._context.state
        self._kept_s[member] = self._context.clock.monotonic_s()
        nodes = {one.node for one in state.members}
        missing = [str(node) for node in self._context.group.nodes() if node not in nodes]
        start = f"start the brokers that are missing (nodes {', '.join(missing)}), or " if missing else ""
        log.warning(
            "cluster %s: node %d (process %d) is silent for %.1f s; consumers of the %d queues that it "
            "leads get nothing meanwhile. It cannot be expelled: %d of %d members would be left, less than a majority. "
            "See its machine and its log (is the process stopped, or does its disk hang?); %sresume or restart it",
            state.name, member.node, member.pid, count * self._interval_s, self._led_by(member),
            len(state.members) - 1, state.size, start, extra=_SILENT,
        )  # fmt: skip

    def configured(self, config: Configuration) -> None:
        """Counts and logs the expulsion that *config* reports, if any."""
        member = config.expelled
        if member is None:
            return
        self.expulsions += 1
        state = self._context.state
        if member != state.me:
            log.warning(
                "cluster %s: node %d (process %d) is expelled: it was silent for %.0f s; the next members "
                "lead its queues. It joins again as soon as it responds",
                state.name, member.node, member.pid, self.limit_s, extra={"event": "cluster.member-expelled"},
            )  # fmt: skip
