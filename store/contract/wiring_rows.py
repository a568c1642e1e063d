"""Rows of the wiring: durable queues, exchanges, bindings, and configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

Arguments = Mapping[str, Any]
"""The arguments of a queue, an exchange or a binding, which can be encoded as a JSON object."""
RowId = Annotated[int, Meta(gt=0, le=(1 << 63) - 1)]
"""The ID of a row. The bounds are checked where rows are decoded from JSON."""


@dataclass(frozen=True)
class QueueRow:
    """A durable queue."""

    id: RowId
    name: str
    arguments: Arguments = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class ExchangeRow:
    """A durable exchange."""

    id: RowId
    name: str
    type: str
    arguments: Arguments = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class BindingRow:
    """A binding: an exchange routes matching messages to a queue. Exchange, queue and key identify it."""

    exchange_id: RowId
    queue_id: RowId
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
    defects: list[str] = field(default_factory=list)
    """Rows that can't be used as they are stored, one line each."""

    @property
    def used_id(self) -> int:
        """The highest ID that was ever given to a queue or exchange."""
        ids = [row.id for row in self.queues + self.going] + [row.id for row in self.exchanges]
        return max([self.last_id, *ids])
