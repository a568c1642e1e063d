"""What a broker is started with."""

from __future__ import annotations

from dataclasses import dataclass

from ..amqp.events import Limits
from ..broker.auto_links import AutoLink
from ..broker.auto_links import parse as parse_auto_link
from ..broker.link_routes import LinkRoute
from ..broker.link_routes import parse as parse_link_route
from ..broker.memory import DEFAULT_LIMIT_BYTES
from ..broker.transactions import TransactionLimits
from ..channel.outward import Target
from ..channel.outward import parse as parse_target
from ..cluster.addresses import Places
from ..journal.archive import ArchiveLimits
from ..router.admission import AdmissionOptions
from ..router.router import RouterOptions
from ..router.tls import TlsOptions
from ..store.kind import JOURNAL
from ..store.options import StoreOptions
from .broker_exposition import QueueChoice

__all__ = [
    "AdmissionOptions",
    "ArchiveLimits",
    "AutoLink",
    "BrokerOptions",
    "ClusterOptions",
    "ExportOptions",
    "Limits",
    "LinkRoute",
    "Places",
    "QueueChoice",
    "RouterOptions",
    "SidecarOptions",
    "StoreOptions",
    "Target",
    "TlsOptions",
    "TransactionLimits",
    "parse_auto_link",
    "parse_link_route",
    "parse_target",
]


@dataclass(frozen=True)
class ClusterOptions:
    """Which cluster."""

    name: str
    size: int = 0
    """How many members it has; 0 for as many as corosync's nodelist has, 1 for one without corosync."""
    force: bool = False
    """An operator's word that those who are here are enough, majority or not."""
    advertise: Places | None = None
    """Where clients reach this member; None for where it listens."""
    keep_aside: int = 2
    """How many times what it had is kept when it gets what others have; 0 for never."""


@dataclass(frozen=True)
class SidecarOptions:
    """What is kept as Parquet beside the journal."""

    directory: str = ""
    """Empty for one in the store."""
    most_bytes: int = 1 << 30


@dataclass(frozen=True)
class ExportOptions:
    """What is exported while the broker runs."""

    target: str
    kind: str = ""
    """parquet, delta or iceberg; empty for what the target is."""
    every_s: int = 300


@dataclass(frozen=True)
class BrokerOptions:
    """All of it."""

    store_dir: str
    store: StoreOptions = StoreOptions()
    """What the kind of store has no use for is left to the others, or refused where it would promise something."""
    router: RouterOptions = RouterOptions()
    auto_create: tuple[str, ...] = ("*",)
    """Patterns of names for which a durable queue is made on first use."""
    credit: int = 1000
    """How many messages a sender may have unsettled."""
    memory_limit_bytes: int = DEFAULT_LIMIT_BYTES
    """How much content waiting messages may hold in memory; what is beyond it stays on the disk."""
    metrics_port: int | None = None
    """Where metrics can be read over HTTP: 0 for any free port, None for nowhere."""
    metrics_host: str = "127.0.0.1"
    transactions: TransactionLimits = TransactionLimits()
    """What clients may have open."""
    store_kind: str = JOURNAL
    """One of ours, or another entry point's name; see `store.kinds`."""
    acl_file: str = ""
    """Who may do what; empty for everybody everything."""
    metrics_of: QueueChoice = QueueChoice()
    """Which queues have metrics of their own."""
    anycast: tuple[str, ...] = ()
    """Patterns of addresses at which each message goes to one receiver, and nothing is stored."""
    multicast: tuple[str, ...] = ()
    """The same, where it goes to all."""
    sidecars: SidecarOptions | None = None
    """Whether record heads are kept as Parquet."""
    export: ExportOptions | None = None
    """Whether records are exported."""
    connect_to: tuple[Target, ...] = ()
    """Containers to keep a connection to."""
    link_routes: tuple[LinkRoute, ...] = ()
    """Addresses whose links go on to these."""
    auto_links: tuple[AutoLink, ...] = ()
    """Queues that are joined with addresses of these."""
    secrets_dir: str = ""
    """Where passwords and certificates of connectors are that management makes; empty for nowhere."""
    container_id: str = "cairnmq"
    """What the broker is called, by clients and by other brokers."""
    cluster: ClusterOptions | None = None
    """The cluster that the broker is a member of."""
