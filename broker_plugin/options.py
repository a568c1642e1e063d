"""What a broker is started with."""

from __future__ import annotations

from dataclasses import dataclass

from ..amqp.engine import Limits
from ..broker.memory import DEFAULT_LIMIT_BYTES
from ..recovery.recover import StoreOptions
from ..router.router import RouterOptions

__all__ = ["BrokerOptions", "Limits", "RouterOptions", "StoreOptions"]


@dataclass(frozen=True)
class BrokerOptions:
    """All of it."""

    store_dir: str
    store: StoreOptions = StoreOptions()
    router: RouterOptions = RouterOptions()
    auto_create: tuple[str, ...] = ("*",)
    """Patterns of names for which a durable queue is made on first use."""
    credit: int = 1000
    """How many messages a sender may have unsettled."""
    memory_limit_bytes: int = DEFAULT_LIMIT_BYTES
    """How much content waiting messages may hold in memory; what is beyond it stays on the disk."""
