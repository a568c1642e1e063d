"""What a broker is started with."""

from __future__ import annotations

from dataclasses import dataclass

from ..amqp.events import Limits
from ..broker.memory import DEFAULT_LIMIT_BYTES
from ..broker.transactions import TransactionLimits
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
    "BrokerOptions",
    "Limits",
    "QueueChoice",
    "RouterOptions",
    "StoreOptions",
    "TlsOptions",
    "TransactionLimits",
]


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
