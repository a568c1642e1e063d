"""Fixtures of brokers in this process or in one of their own, and of clients that are closed at the end of a test."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from proton.utils import BlockingConnection

from cairnmq.amqp.links.events import Limits
from cairnmq.broker.kernel.memory_budget import DEFAULT_LIMIT_BYTES
from cairnmq.broker_plugin.options import (
    BrokerOptions,
    ClusterOptions,
    RouterOptions,
    StoreOptions,
    TransactionLimits,
    parse_auto_link,
    parse_link_route,
    parse_target,
)
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.broker.running import running_brokers
from tests.harness.clients.peers import DEADLINE_S, Peer
from tests.harness.process import BrokerProcess

DEFAULTS = Limits()
NO_LIMITS = TransactionLimits()
StartBroker = Callable[..., RunningBroker]
NewPeer = Callable[..., Peer]
StartProcess = Callable[..., BrokerProcess]
Connect = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def no_authorities() -> Iterator[None]:
    """Keep clients from loading CA certificates, which takes 90 ms of CPU time for each container of Proton."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", os.devnull)
        yield


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Return a function that starts brokers in this process, each on a store of its own."""

    def start(
        *,
        auto_create: tuple[str, ...] = ("*",),
        credit: int = 1000,
        worker_threads: int = 1,
        limits: Limits = DEFAULTS,
        memory_limit_bytes: int = DEFAULT_LIMIT_BYTES,
        transactions: TransactionLimits = NO_LIMITS,
        anycast: tuple[str, ...] = (),
        multicast: tuple[str, ...] = (),
        connect_to: tuple[str, ...] = (),
        link_routes: tuple[str, ...] = (),
        auto_links: tuple[str, ...] = (),
        container_id: str = "cairnmq",
        cluster: ClusterOptions | None = None,
        **router_options: Any,
    ) -> RunningBroker:
        store_dir = str(tmp_path / f"store-{len(running)}")
        router = RouterOptions(port=0, worker_threads=worker_threads, limits=limits, **router_options)
        options = BrokerOptions(
            store_dir,
            StoreOptions(),
            router,
            auto_create,
            credit,
            memory_limit_bytes,
            transactions=transactions,
            anycast=anycast,
            multicast=multicast,
            connect_to=tuple(map(parse_target, connect_to)),
            link_routes=tuple(map(parse_link_route, link_routes)),
            auto_links=tuple(map(parse_auto_link, auto_links)),
            container_id=container_id,
            cluster=cluster,
        )
        broker = RunningBroker(options)
        running.append(broker)
        return broker

    with running_brokers() as running:
        yield start


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_broker()


@pytest.fixture
def peer_at() -> Iterator[Callable[..., Peer]]:
    """Return a function that connects a peer to a port."""
    with ExitStack() as stack:

        def new(port: int, **options: Any) -> Peer:
            peer = Peer(port, **options)
            stack.callback(peer.cut)
            return peer

        yield new


@pytest.fixture
def new_peer(broker: RunningBroker, peer_at: NewPeer) -> NewPeer:
    """Return a function that connects a peer to the broker."""
    return lambda **options: peer_at(broker.port, **options)


@pytest.fixture
def peer(new_peer: NewPeer) -> Peer:
    return new_peer()


@pytest.fixture
def connect(broker: RunningBroker) -> Iterator[Connect]:
    """Return a function that connects with Proton's blocking API."""
    with ExitStack() as stack:

        def new(port: int = broker.port, **options: Any) -> Any:
            connection = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE_S, **options)
            stack.callback(connection.close)
            return connection

        yield new


@pytest.fixture
def start_process(tmp_path: Path) -> Iterator[StartProcess]:
    """Return a function that starts `cairnmq broker` on the test's store, which is the same one for all calls."""
    started: list[BrokerProcess] = []

    def start(*options: str) -> BrokerProcess:
        started.append(BrokerProcess(tmp_path / "store", "--port", "0", *options))
        return started[-1].ready()

    yield start
    for running in started:
        if running.process.poll() is None:
            running.stop(signal.SIGKILL)
