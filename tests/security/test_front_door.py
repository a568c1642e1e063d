"""Failed logins are reported by the client of the tools and in the log of the broker."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest
from proton.utils import BlockingConnection

from cairnmq.amqp.client.login import BrokerLogin, LoginSocket
from cairnmq.base.errors import BrokerError
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.process import CAIRNMQ
from tests.harness.security.wire import DEADLINE_S, wired

from .conftest import PASSWORDS, Certificates, StartBroker


def where(port: int, user: str | None = "anna", password: str = PASSWORDS["anna"], **more: object) -> BrokerLogin:
    return BrokerLogin("127.0.0.1", port, user=user, password=password, timeout_s=DEADLINE_S, **more)  # type: ignore[arg-type]


def failure(at: BrokerLogin) -> str:
    with pytest.raises(BrokerError) as raised:
        LoginSocket(at).enter()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_ctl_logs_in_without_mechanisms_of_a_sasl_library(guarded: RunningBroker, tmp_path: Path) -> None:
    """`ctl` does not need Cyrus SASL in proton or libsasl2-modules (usability 1)."""
    command = ("ctl", "--timeout", "60", "--url", f"127.0.0.1:{guarded.port}", "--user", "anna", "connections", "list")
    done = subprocess.run(
        [CAIRNMQ, *command],
        capture_output=True, text=True, timeout=DEADLINE_S,
        env={**os.environ, "CAIRNMQ_PASSWORD": PASSWORDS["anna"], "SASL_PATH": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "anna" in done.stdout


def test_client_that_leaves_without_a_mechanism_is_logged(
    guarded: RunningBroker, logged: pytest.LogCaptureFixture
) -> None:  # usability 1: the log contained "No protocol header found"
    with pytest.raises(Exception, match=r"(?i)authentication"):
        BlockingConnection(f"127.0.0.1:{guarded.port}", timeout=DEADLINE_S, allowed_mechs="GSSAPI")
    with wired(guarded.port) as wire:
        wire.sasl()
    with wired(guarded.port) as wire:
        wire.send(b"AMQP\x00\x01\x00\x00")
        wire.rest()
    LoginSocket(where(guarded.port)).enter()
    warnings = [one.getMessage() for one in logged.records if one.levelname == "WARNING"]
    for reason in ("closed the connection without choosing a SASL mechanism", "the client did not log in"):
        expected = f"{reason} (offered: SCRAM-SHA-256, PLAIN); see 'Clients' in the documentation"
        assert any(expected in told for told in warnings), warnings
    assert all("127.0.0.1:" in told for told in warnings)
    assert "No protocol header" not in logged.text


def test_client_of_amqp_0_9_1_is_named(guarded: RunningBroker, logged: pytest.LogCaptureFixture) -> None:
    with wired(guarded.port) as wire:  # usability 12; the header of pika, Celery and aio-pika
        wire.send(b"AMQP\x00\x00\x09\x01")
        wire.rest()
    assert "this client speaks AMQP 0-9-1 (as pika, Celery and aio-pika do); CairnMQ speaks AMQP 1.0" in logged.text


def test_a_port_check_is_no_failed_login(guarded: RunningBroker, logged: pytest.LogCaptureFixture) -> None:
    with wired(guarded.port):
        pass
    LoginSocket(where(guarded.port)).enter()
    assert "failed" not in logged.text


def test_password_and_user_are_checked_by_name(guarded: RunningBroker) -> None:  # usability 24
    told = failure(where(guarded.port, password="wrong"))
    assert "login failed: wrong user name or password (user 'anna', SCRAM-SHA-256); check --user and" in told
    told = failure(where(guarded.port, user=None))
    assert "the broker requires a user name (it offers SCRAM-SHA-256, PLAIN); name the user with --user" in told


def test_login_where_nobody_has_an_account(open_to_all: RunningBroker) -> None:
    told = failure(where(open_to_all.port))
    assert "no usable SASL mechanism for user 'anna': the broker offers ANONYMOUS; this client has SCRAM" in told
    assert "start the broker with --users-file" in told


def test_tls_that_only_one_side_speaks(
    start_broker: StartBroker, users_file: str, certificates: Certificates
) -> None:  # usability 23
    broker = start_broker(users_file=users_file, anonymous=False, tls=certificates.options())
    assert "that port does not speak TLS; use amqp://" in failure(where(broker.port, tls=True))
    assert "use amqps://" in failure(where(broker.tls_port))
    told = failure(where(broker.tls_port, tls=True))
    assert "the broker's certificate is not trusted: " in told
    assert told.endswith("name the CA that signed it with --ca")
    elsewhere = BrokerLogin("127.0.0.2", broker.tls_port, True, str(certificates.ca), "anna", timeout_s=DEADLINE_S)
    with pytest.raises(BrokerError):  # the certificate is for another address, or the port is closed
        LoginSocket(elsewhere).enter()
    LoginSocket(where(broker.tls_port, tls=True, ca=str(certificates.ca))).enter()


@contextmanager
def answering(*answers: bytes) -> Iterator[int]:
    """Start a peer that sends one of *answers* after each read; provide its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE_S)

        def serve() -> None:
            with server.accept()[0] as client:
                for answer in answers:
                    client.recv(4096)
                    client.sendall(answer)
                with suppress(ConnectionResetError):
                    client.recv(4096)

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(DEADLINE_S)


def mechanisms(*names: bytes) -> bytes:
    items = b"".join(bytes((len(name),)) + name for name in names)
    body = b"\x00\x53\x40\xc0" + bytes((len(items) + 5, 1, 0xE0, len(items) + 2, len(names), 0xA3)) + items
    return b"AMQP\x03\x01\x00\x00" + (len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"AMQP\x00\x00\x09\x01", "that broker speaks AMQP 0-9-1, this client AMQP 1.0 only"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "that port does not speak AMQP"),
        (b"\x15\x03\x03\x00\x02\x02\x46\x00", "that port speaks TLS; use amqps://"),
        (mechanisms(b"GSSAPI", b"EXTERNAL"),
         "no usable SASL mechanism for user 'anna': the broker offers GSSAPI, EXTERNAL; this client has"),
    ],
)  # fmt: skip
def test_other_servers_are_told_apart(answer: bytes, told: str) -> None:
    with answering(answer) as port:
        assert told in failure(where(port))


def test_nobody_there() -> None:  # usability 22
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert failure(where(port)).endswith("can't be reached: connection refused; is a broker running there?")


