"""Disconnects the clients of a member that stops serving, and requeues their messages. Core only."""

from __future__ import annotations

from ...broker.kernel.connections import Connections
from ...broker.transactions.registry import Transactions
from ..kernel.service import Service
from ..replication.ownership_handler import QueueOwnerHandler


class ClientDisconnector:
    """The clients of one member."""

    def __init__(
        self, service: Service, connections: Connections, transactions: Transactions, owners: QueueOwnerHandler
    ) -> None:
        self._service = service
        self._connections = connections
        self._transactions = transactions
        self._owners = owners

    def expel(self) -> None:
        """Closes all connections, rolls transactions back, and requeues what consumers have."""
        reason = self._service.not_serving_reason() or "this broker has left its cluster"
        for connection in [*self._connections.by_end.values()]:
            connection.end.expel(reason, elsewhere=True)
        self._transactions.roll_back_all(reason)
        for replica in self._owners.replicas.values():
            replica.take_back()
        self._owners.forget_consumers()
