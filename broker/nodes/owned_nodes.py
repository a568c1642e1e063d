"""Queues and topics that belong to the connection of the client that they were made for. Core only."""

from __future__ import annotations

from ...amqp.ports import Open
from ...base.callbacks import ignore
from ..kernel.context import CoreContext
from ..queues.queue import Queue
from . import lifetimes
from .addresses import is_temporary
from .exchanges import Exchange, FanoutExchange
from .registry import NodeRegistry
from .targets import ExchangeTarget


class OwnedNodes:
    """The dynamic nodes of all clients."""

    def __init__(self, core: CoreContext, nodes: NodeRegistry) -> None:
        self._nodes = nodes
        self._users = core.users
        self._by_connection: dict[object, list[Queue | Exchange]] = {}
        core.events.connection_closed.append(self._connection_closed)

    def make_queue(self, name: str, attach: Open) -> Queue:
        """Create a queue for a link. Its lifetime ends with the link, unless the client asked for another policy."""
        lifetime = lifetimes.asked_for(attach.terminus.properties)
        queue = self._nodes.add_queue(name, self._users.owned({"auto-delete": lifetime}, attach.user))
        if lifetime == lifetimes.CLOSE:
            self._own(queue, attach)
        return queue

    def make_topic(self, name: str, attach: Open) -> ExchangeTarget:
        """Create a topic for a link, whose subscribers all get its messages. Its lifetime ends with the link."""
        exchange = self._nodes.add_exchange(name, FanoutExchange.type, {})
        self._own(exchange, attach)
        return ExchangeTarget(exchange)

    def _own(self, node: Queue | Exchange, attach: Open) -> None:
        """Let *node* go with the connection of *attach*.

        Only that connection reads from a node that was made for a receiver, or as a temporary destination of JMS.
        """
        node.private = attach.to_client or is_temporary(attach.terminus.capabilities)
        node.owner = attach.connection
        self._by_connection.setdefault(attach.connection, []).append(node)

    def node_deleted(self, node: Queue | Exchange) -> None:
        """Forget a node that was deleted."""
        if node.owner is not None and node in self._by_connection.get(node.owner, ()):
            self._by_connection[node.owner].remove(node)

    def _connection_closed(self, connection: object) -> None:
        """Delete the nodes that belong to a connection."""
        for node in list(self._by_connection.get(connection, ())):
            if isinstance(node, Queue):
                self._nodes.delete_queue(node, ignore, "it went with its connection")
            else:
                self._nodes.delete_exchange(node, ignore, "it went with its connection")
        self._by_connection.pop(connection, None)
