"""Rows of the wiring: durable queues, exchanges, bindings, and configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Arguments = Mapping[str, Any]
"""The arguments of a queue, an exchange or a binding, which can be encoded as a JSON object."""


@dataclass(frozen=True)
class QueueRow:
    """A durable queue."""

    id: int
    name: str
    arguments: Arguments = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class ExchangeRow:
    """A durable exchange."""

    id: int
    name: str
    type: str
    arguments: Arguments = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class BindingRow:
    """A binding: an exchange routes matching messages to a queue. Exchange, queue and key identify it."""

    exchange_id: int
    queue_id: int
    key: str
    arguments: Arguments = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class ConfigRow:
    """Named settings."""

    name: str
    settings: Arguments = field(hash=False)


@dataclass(frozen=True)
class Rows:
    """The complete wiring at one point in time, in order of creation."""

    queues: list[QueueRow] = field(default_factory=list)
    exchanges: list[ExchangeRow] = field(default_factory=list)
    bindings: list[BindingRow] = field(default_factory=list)
    configs: list[ConfigRow] = field(default_factory=list)
    going: list[QueueRow] = field(default_factory=list)
    """Queues whose deletion has begun and is not finished."""
    last_id: int = 0

    @property
    def used_id(self) -> int:
        """The highest ID that was ever given to a queue or exchange."""
        ids = [row.id for row in self.queues + self.going] + [row.id for row in self.exchanges]
        return max([self.last_id, *ids])
