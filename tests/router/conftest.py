"""The brokers and clients of `tests/clients`."""

from __future__ import annotations

from tests.clients.conftest import broker, connect, new_peer, peer, peer_at, start_broker, start_process

__all__ = ["broker", "connect", "new_peer", "peer", "peer_at", "start_broker", "start_process"]
