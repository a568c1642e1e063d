"""The options that a broker is started with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..amqp.connector_target import Target
from ..amqp.connector_target import parse as parse_target
from ..broker.kernel.memory_budget import DEFAULT_LIMIT_BYTES
from ..broker.outbound.auto_links import AutoLink
from ..broker.outbound.auto_links import parse as parse_auto_link
from ..broker.outbound.link_routes import LinkRoute
from ..broker.outbound.link_routes import parse as parse_link_route
from ..broker.selector.background_compiler import DEFAULT_SIZE_BYTES
from ..broker.transactions.context import TransactionLimits
from ..broker.users.quotas import Quota
from ..cluster.health.liveness import SILENCE_S
from ..cluster.nodes.failover_addresses import ClientAddresses
from ..journal.files.archive import ArchiveLimits
from ..router.options import RouterOptions
from ..store.contract.options import StoreOptions
from ..store.directory.kind import JOURNAL
from .broker_exposition import QueueChoice
from .traces import TraceOptions

__all__ = [
    "ArchiveLimits", "AutoLink", "BrokerOptions", "ClientAddresses", "ClusterOptions", "ExportOptions", "LinkRoute",
    "QueueChoice", "Quota", "RouterOptions", "RunTimeOptions", "SidecarOptions", "StoreOptions", "Target",
    "TraceOptions", "TransactionLimits", "parse_auto_link", "parse_link_route", "parse_target",
]  # fmt: skip


@dataclass(frozen=True)
class ClusterOptions:
    """The name of the cluster that the broker joins."""

    name: str
    size: int = 0
    """The number of members; 0 for as many as corosync's nodelist has, 1 for a cluster without corosync."""
    force: bool = False
    """True if an operator declared the present members to be enough, even without a majority."""
    advertise: ClientAddresses | None = None
    """The addresses at which clients reach this member; None for those it listens at."""
    keep_aside: int = 2
    """The number of divergent states to keep after state transfers; 0 for none."""
    silence_s: float = SILENCE_S
    """Seconds without a sign of life after which a member is expelled."""


@dataclass(frozen=True)
class SidecarOptions:
    """The options of column indexes: Parquet files beside the journal."""

    directory: str = ""
    """The directory of the column indexes; empty for one in the store."""
    most_bytes: int = 1 << 30


@dataclass(frozen=True)
class ExportOptions:
    """The options of the export that runs with the broker."""

    target: str
    kind: str = ""
    """The format: parquet, delta or iceberg; empty for the format of the existing target."""
    every_s: int = 300


@dataclass(frozen=True)
class RunTimeOptions:
    """The options that a reload changes."""

    quota: Quota
    audit_logins: bool
    auto_create: tuple[str, ...]
    memory_limit_bytes: int
    max_connections: int
    max_connections_per_user: int
    restart_needed: tuple[str, ...]
    """The names of changed options that need a restart."""
    also: Callable[[], None]
    """A callback for options of the broker's caller, such as the level of its log; called when options are applied."""


@dataclass(frozen=True)
class BrokerOptions:
    """The options of a broker."""

    store_dir: str
    store: StoreOptions = StoreOptions()
    """The options of the store. Options that its kind does not use are ignored, or refused where they promise more."""
    router: RouterOptions = RouterOptions()
    auto_create: tuple[str, ...] = ("*",)
    """Patterns of names for which a durable queue is made on first use."""
    credit: int = 1000
    """The number of messages that a sender may have unsettled."""
    memory_limit_bytes: int = DEFAULT_LIMIT_BYTES
    """Bytes of content that waiting messages may hold in memory; content beyond it stays on disk."""
    metrics_port: int | None = None
    """The port of the HTTP metrics server: 0 for any free port, None for no server."""
    metrics_host: str = "127.0.0.1"
    transactions: TransactionLimits = TransactionLimits()
    """The limits of clients' open transactions."""
    store_kind: str = JOURNAL
    """The kind of store: a built-in one, or the name of another entry point; see `store.kinds`."""
    acl_file: str = ""
    """The file of access rules; empty to allow everything to everyone."""
    quota: Quota = Quota()
    """The quota of each user for whom the access rules state no other."""
    metrics_of: QueueChoice = QueueChoice()
    """The choice of queues with metrics of their own."""
    anycast: tuple[str, ...] = ()
    """Patterns of addresses with anycast passthrough routing: one receiver per message, without storage."""
    multicast: tuple[str, ...] = ()
    """Patterns of addresses with multicast passthrough routing: all receivers per message, without storage."""
    sidecars: SidecarOptions | None = None
    """The options of column indexes; None for no column indexes."""
    export: ExportOptions | None = None
    """The options of the export; None for no export."""
    connect_to: tuple[Target, ...] = ()
    """The connectors: containers that the broker keeps connections to."""
    link_routes: tuple[LinkRoute, ...] = ()
    """Link routes: addresses whose links continue at these containers."""
    auto_links: tuple[AutoLink, ...] = ()
    """Auto-links: queues that are linked to addresses of these containers."""
    secrets_dir: str = ""
    """The directory of passwords and certificates of connectors that management creates; empty for none."""
    metrics_token_file: str = ""
    """The file with the token that /metrics requires; empty for none."""
    audit_file: str = ""
    """The file to which audit records are appended as JSON lines; empty for the log only."""
    audit_logins: bool = False
    """True to log successful logins at INFO, instead of DEBUG."""
    container_id: str = "cairnmq"
    """The AMQP container ID of the broker, for clients and other brokers."""
    cluster: ClusterOptions | None = None
    """The cluster that the broker is a member of."""
    max_selector_bytes: int = DEFAULT_SIZE_BYTES
    """The longest selector that a client may use."""
    trace: TraceOptions | None = None
    """The options of tracing; None for no tracing."""
    requires_store: bool = False
    """True to fail without a store, instead of creating one."""
