"""What there is to be known of a membership: for Prometheus, and for management (`cairnmq ctl cluster`).

Read off plain numbers, by the thread that answers a scrape, too: figures may be a moment apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ..cluster.core import Core
from ..cluster.phases import SYNCED
from ..management.entity import Attribute
from ..management.system import One
from .exposition import PREFIX, Samples, Value, metric_of


class ClusterFamily(NamedTuple):
    """One metric."""

    name: str
    kind: str
    """counter or gauge."""
    help: str
    value: Callable[[Core], Value]

    @property
    def full_name(self) -> str:
        return PREFIX + self.name


CLUSTER_FAMILIES = (
    ClusterFamily(
        "cluster_phase_info", "gauge",
        "How far this member is: outside, founding, wiping, asking, updating or synced; always 1.",
        lambda core: Samples(("cluster", "phase"), [((core.name, core.phase), 1)]),
    ),
    ClusterFamily("cluster_synced", "gauge", "1 while it has all messages.", lambda core: core.phase == SYNCED),
    ClusterFamily("cluster_serving", "gauge", "1 while it serves clients.", lambda core: not core.why_not_serving()),
    ClusterFamily("cluster_members", "gauge", "Members it knows, itself included.", lambda core: len(core.members)),
    ClusterFamily(
        "cluster_following_members", "gauge", "Those of them that do what they hear.", lambda core: core.following
    ),
    ClusterFamily(
        "cluster_waiting_events", "gauge", "Events that a majority has not acknowledged.",
        lambda core: core.completion.backlog,
    ),
    ClusterFamily(
        "cluster_in_flight_bytes", "gauge", "Said, and not heard again.", lambda core: core.group.in_flight_bytes
    ),
    ClusterFamily(
        "cluster_owned_queues", "gauge", "Queues whose messages are handed out here.", lambda core: core.owned_queues
    ),
    ClusterFamily(
        "cluster_owner_changes_total", "counter", "How often a queue got another owner.", lambda core: core.owners.moves
    ),
    ClusterFamily(
        "cluster_brought_messages_total", "counter", "Messages brought to newcomers.",
        lambda core: core.updater.brought,
    ),
    ClusterFamily(
        "cluster_lost_total", "counter", "How often the group was lost.", lambda core: core.belonging.lost_times
    ),
    ClusterFamily(
        "cluster_wiring_stalls_total", "counter", "How often the wiring made what is behind it wait.",
        lambda core: core.stalls,
    ),
    ClusterFamily(
        "cluster_lag_bytes", "gauge", "Heard, and not on the disk here.", lambda core: core.flow.lag_bytes
    ),
    ClusterFamily(
        "cluster_holding", "gauge", "1 while clients' messages are held back, since a member lags.",
        lambda core: core.flow.holds,
    ),
    ClusterFamily(
        "cluster_held_bytes", "gauge", "Of clients' messages that are held back here.",
        lambda core: core.flow.held_bytes,
    ),
    ClusterFamily(
        "cluster_flow_off_total", "counter", "How often this member said that it lags.", lambda core: core.flow.offs
    ),
    ClusterFamily("cluster_bad_events_total", "counter", "Events that are none.", lambda core: core.deliver.bad_events),
)  # fmt: skip


class ClusterCollector(Collector):
    """Gives the families at each scrape."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def collect(self) -> Iterator[Metric]:
        for family in CLUSTER_FAMILIES:
            yield metric_of(family.full_name, family.kind, family.help, family.value(self._core))


class ClusterType(One):
    name = "cluster"
    meaning = "The cluster, as this member sees it; only where it is one. There is one, called `cluster`."

    def __init__(self, core: Core) -> None:
        super().__init__(
            (
                Attribute("cluster", "string", "Its name.", lambda _: core.name),
                Attribute("phase", "string", "How far this member is.", lambda _: core.phase),
                Attribute("serving", "boolean", "Whether it serves clients.", lambda _: not core.why_not_serving()),
                Attribute("members", "list", "All in the group.", lambda _: [str(one) for one in core.members]),
                Attribute(
                    "synced", "list", "Those that have all messages.",
                    lambda _: [str(one) for one in sorted(core.owners.synced)],
                ),
                Attribute("me", "string", "Which of them this one is.", lambda _: str(core.me)),
                Attribute(
                    "others-at", "list", "Where clients reach the others, as this one tells its own.",
                    lambda _: [f"{host}:{port}" for places in core.addresses.others for host, port in places],
                ),
                Attribute("needed", "number", "How many a majority is.", lambda _: core.completion.majority),
                Attribute("queues", "number", "Replicated queues.", lambda _: len(core.owners.replicas)),
                Attribute("owned-queues", "number", "Those handed out here.", lambda _: core.owned_queues),
                Attribute(
                    "waiting-events", "number", "What a majority has not acknowledged.",
                    lambda _: core.completion.backlog,
                ),
                Attribute("unfinished", "number", "Queues not whole here.", lambda _: core.joining.unfinished),
            ),
            (),
        )  # fmt: skip
