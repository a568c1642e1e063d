"""Fixtures for in-process brokers with users and for the certificates of their clients."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from cairnmq.amqp.links.events import Limits
from cairnmq.base.accounts import users
from cairnmq.base.accounts.credentials import FEWEST_ITERATIONS, make
from cairnmq.broker_plugin.options import BrokerOptions, RouterOptions, StoreOptions, parse_link_route, parse_target
from cairnmq.broker_plugin.run import RunningBroker
from cairnmq.router.tls import TlsOptions
from tests.harness.broker.running import running_brokers
from tests.harness.security.wire import Wire, wired

DEFAULTS = Limits()
PASSWORDS = {"anna": "one stone", "ben": "another stone"}
StartBroker = Callable[..., RunningBroker]


@pytest.fixture(scope="session")
def users_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("users") / "users")
    kept = {name: make(password, FEWEST_ITERATIONS) for name, password in PASSWORDS.items()}
    users.change(path, lambda accounts: accounts.update(kept))
    return path


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Provide a function that starts brokers, with in-memory stores by default."""

    def start(
        *,
        acl: str = "",
        limits: Limits = DEFAULTS,
        store_kind: str = "memory",
        auto_create: tuple[str, ...] = ("*",),
        connect_to: tuple[str, ...] = (),
        link_routes: tuple[str, ...] = (),
        container_id: str = "cairnmq",
        **router: Any,
    ) -> RunningBroker:
        acl_file = ""
        if acl:
            (tmp_path / "acl.toml").write_text(acl)
            acl_file = str(tmp_path / "acl.toml")
        store_dir = str(tmp_path / f"store-{len(running)}") if store_kind != "memory" else ""
        options = BrokerOptions(
            store_dir,
            StoreOptions(),
            RouterOptions(port=0, limits=limits, **router),
            auto_create,
            store_kind=store_kind,
            container_id=container_id,
            acl_file=acl_file,
            connect_to=tuple(map(parse_target, connect_to)),
            link_routes=tuple(map(parse_link_route, link_routes)),
            secrets_dir=str(tmp_path),
        )
        running.append(RunningBroker(options))
        return running[-1]

    with running_brokers() as running:
        yield start


@pytest.fixture
def guarded(start_broker: StartBroker, users_file: str) -> RunningBroker:
    """Start a broker that requires a password and accepts passwords without TLS."""
    return start_broker(users_file=users_file, anonymous=False, insecure_auth=True)


@pytest.fixture
def open_to_all(start_broker: StartBroker) -> RunningBroker:
    return start_broker()


class Certificates:
    """A CA and its signed certificates, in files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.authority = trustme.CA()
        self.ca = str(directory / "ca.pem")
        self.authority.cert_pem.write_to_path(self.ca)
        server = self.authority.issue_cert("localhost", "127.0.0.1")
        self.server = str(directory / "server.pem")
        server.private_key_and_cert_chain_pem.write_to_path(self.server)

    def client(self, name: str = "", *, authority: trustme.CA | None = None) -> ssl.SSLContext:
        """Return the TLS context of a client with a certificate for the common name *name*, or with no certificate."""
        context = ssl.create_default_context(cafile=self.ca)
        if name:
            issued = (authority or self.authority).issue_cert("client@example.org", common_name=name)
            path = self._directory / f"client-{name!r}.pem"
            issued.private_key_and_cert_chain_pem.write_to_path(str(path))
            context.load_cert_chain(path)
        return context

    def shown_by_client(self, name: str) -> bytes:
        """Return the certificate that was last issued to the client *name*."""
        return (self._directory / f"client-{name!r}.pem").read_bytes()

    def options(self, clients: str = "none") -> TlsOptions:
        return TlsOptions(self.server, self.server, 0, self.ca if clients != "none" else "", clients)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


def assert_serves(port: int, wire: Wire | None = None) -> None:
    """Check that the broker serves other clients: a new connection attaches a sending link and receives credit."""
    with wired(port) as other:
        other.open()
        other.attach("out", 0, "others", sends=True)
