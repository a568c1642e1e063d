"""The metrics of a cluster member: for Prometheus, and for management (`cairnmq ctl cluster`).

They are read from plain numbers, also by the thread that answers a scrape: values may be inconsistent for a moment.
"""

from __future__ import annotations

from collections import Counter

from ..cluster.group.member_id import MemberId
from ..cluster.kernel.phases import SYNCHRONIZED, TRANSFERRING
from ..cluster.member import ClusterMember
from ..management.entities.system import One
from ..management.protocol.entity import Attribute, boolean, number, string
from .exposition import Family, Samples, counter, gauge

CLUSTER_FAMILIES: tuple[Family[ClusterMember], ...] = (
    gauge(
        "cluster_phase_info",
        "The phase of this member: outside, bootstrapping, discarding, requesting, transferring, synchronized.",
        lambda core: Samples(("cluster", "phase"), [((core.state.name, core.state.phase_name), 1)]),
    ),
    gauge("cluster_synced", "1 while this member has all messages.", lambda core: core.state.phase == SYNCHRONIZED),
    gauge("cluster_serving", "1 while this member serves clients.", lambda core: not core.service.not_serving_reason()),
    gauge("cluster_members", "Members of the group, this one included.", lambda core: len(core.state.members)),
    gauge("cluster_following_members", "Members that apply events.", lambda core: core.service.following),
    gauge("cluster_waiting_events", "Events that a majority has not acknowledged.", lambda core: core.commits.backlog),
    gauge("cluster_in_flight_bytes", "Multicast events that have not come back.",
          lambda core: core.group.in_flight_bytes),
    gauge("cluster_owned_queues", "Queues that this member leads.", lambda core: core.owned_queues),
    counter("cluster_owner_changes_total", "Changes of queue leaders.", lambda core: core.owners.moves),
    counter("cluster_brought_messages_total", "Messages sent to joining members.", lambda core: core.sender.brought),
    gauge("cluster_messages_to_bring", "Messages that this member has yet to send to joining members.",
          lambda core: core.sender.left),
    gauge("cluster_received_messages", "Messages of the current state transfer that this member has.",
          lambda core: core.receiver.received),
    gauge("cluster_kept_messages", "Messages of the current state transfer that were on its own disk.",
          lambda core: core.receiver.kept_messages.kept),
    gauge("cluster_messages_to_receive", "Messages of the current state transfer, as counted at its start.",
          lambda core: core.receiver.wanted),
    counter("cluster_lost_total", "Losses of the group or of its majority.", lambda core: core.view_change.lost_times),
    counter("cluster_wiring_stalls_total", "Changes of the wiring that events had to wait for.",
            lambda core: core.inbox.stalls),
    gauge("cluster_lag_bytes", "Received events that are not on the disk of this member.",
          lambda core: core.flow.lag_bytes),
    gauge("cluster_holding", "1 while messages of clients are held back because a member lags.",
          lambda core: core.flow.holds),
    gauge("cluster_held_bytes", "Messages of clients that are held back.", lambda core: core.flow.held_bytes),
    counter("cluster_flow_off_total", "Times at which this member reported that it lags.", lambda core: core.flow.offs),
    gauge("cluster_silent_members", "Members that are silent for more than a third of --cluster-silence.",
          lambda core: core.liveness.silent_members),
    gauge("cluster_longest_silence_seconds", "The longest silence of a member.",
          lambda core: core.liveness.longest_silence_s),
    counter("cluster_expelled_members_total", "Silent members that were expelled, as seen by this member.",
            lambda core: core.liveness.expulsions),
    gauge("cluster_oldest_unconfirmed_seconds", "Age of the oldest event that a majority has not acknowledged.",
          lambda core: core.commit_delays.oldest_s),
    counter("cluster_bad_events_total", "Invalid events.", lambda core: core.apply_loop.bad_events),
)  # fmt: skip


def member_rows(core: ClusterMember) -> list[dict[str, str | int | bool]]:
    """Return a row for each configured node, as this member sees it."""
    leads = Counter(replica.owner for replica in [*core.owners.replicas.values()])
    places = core.addresses.by_node
    rows: list[dict[str, str | int | bool]] = []
    present = {member.node: member for member in core.state.members}
    for node in sorted({*core.group.nodes(), *present}):
        member = present.get(node)
        known = places.get(node)
        rows.append(
            {
                "node": node,
                "address": ", ".join(f"{host}:{port}" for host, port in (known.plain + known.tls if known else ())),
                "state": "not connected" if member is None else _state(core, member),
                "leader-of": 0 if member is None else leads[member],
                "process": 0 if member is None else member.pid,
                "incarnation": "" if member is None else f"{member.incarnation:x}"[:8],
                "this-one": member is not None and member == core.state.me,
            }
        )
    return rows


def _state(core: ClusterMember, member: MemberId) -> str:
    if member in core.state.synced:
        return "synchronized"
    if member == core.state.me and core.state.phase == TRANSFERRING:
        wanted = max(core.receiver.wanted, core.receiver.received, 1)
        return f"transferring {100 * core.receiver.received // wanted} %"
    if member == core.state.me:
        return core.state.phase_name
    if member in core.commits.floors:
        share = core.sender.share(member)
        return "transferring" if share is None else f"transferring {share:.0%}".replace("%", " %")
    return "joining"


class ClusterType(One):
    name = "cluster"
    meaning = "The cluster, as this member sees it; only where it is one. There is one, called `cluster`."

    def __init__(self, core: ClusterMember) -> None:
        super().__init__(
            (
                string("cluster", "Its name.", lambda _: core.state.name),
                string("phase", "The phase of this member.", lambda _: core.state.phase_name),
                boolean("serving", "This member serves clients.", lambda _: not core.service.not_serving_reason()),
                Attribute("list", "members", "The members of the group.",
                          lambda _: [str(one) for one in core.state.members]),
                number("connected", "The number of members.", lambda _: len(core.state.members)),
                Attribute(
                    "list", "member-states", "A row for each node: address, state, queues that it leads, incarnation.",
                    lambda _: member_rows(core),
                ),
                Attribute("list", "synced", "The members that have all messages.",
                          lambda _: [str(one) for one in sorted(core.state.synced)]),
                string("me", "The ID of this member.", lambda _: str(core.state.me)),
                Attribute("list", "others-at", "The addresses at which clients reach the other members.",
                          lambda _: [f"{host}:{port}" for places in core.addresses.others for host, port in places]),
                number("needed", "The number of members of a majority.", lambda _: core.commits.majority),
                number("queues", "Replicated queues.", lambda _: len(core.owners.replicas)),
                number("owned-queues", "Replicated queues that this member leads.", lambda _: core.owned_queues),
                number("waiting-events", "Events that a majority has not acknowledged.",
                       lambda _: core.commits.backlog),
                number("lag-bytes", "Received events not on its disk yet.", lambda _: core.flow.lag_bytes),
                number("unfinished", "Queues that are not complete on this member.",
                       lambda _: core.receiver.unfinished),
            ),
        )  # fmt: skip
