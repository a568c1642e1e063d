"""TLS: protocol versions, authentication by certificate, and floods of records."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time

import pytest
import trustme
from proton import Message

from cairnmq.base.errors import CairnError
from cairnmq.router import tls
from cairnmq.router.tls import TlsOptions
from tests.harness.security.wire import DEADLINE_S, DISPOSITION, TRANSFER, Wire, flow, message, transfer, wired

from .conftest import PASSWORDS, Certificates, StartBroker, assert_serves

OK, AUTH = 0, 1


def test_messages_go_through_it(start_broker: StartBroker, certificates: Certificates) -> None:
    """A message longer than a TLS record and longer than one read is transferred over TLS."""
    broker = start_broker(tls=certificates.options(), plain=False)
    assert (broker.address, broker.port) == ("", 0)
    body = bytes(range(256)) * 4000
    with wired(broker.tls_port, context=certificates.client()) as wire:
        assert isinstance(wire.sock, ssl.SSLSocket)
        wire.open()
        wire.attach("out", 0, "orders", sends=True)
        wire.attach("in", 1, "orders", sends=False)
        wire.say(flow(1, 10))
        content = bytes(Message(body=body).encode())
        parts = [content[at : at + 60_000] for at in range(0, len(content), 60_000)]
        for number, part in enumerate(parts):
            wire.say(transfer(0, part, more=number < len(parts) - 1))
        got, more = b"", True
        while more:
            code, fields, raw = wire.next()
            if code == TRANSFER:
                size = int.from_bytes(raw[4:8]) + 8 if raw[3] == 0xD0 else raw[4] + 5
                got += raw[size:]
                more = len(fields) > 5 and fields[5] is True
        assert got.endswith(body)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_older_than_1_2_is_refused(
    start_broker: StartBroker, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    broker = start_broker(tls=certificates.options())
    context = certificates.client()
    context.minimum_version = context.maximum_version = version
    with wired(broker.tls_port, context=context) as wire:
        wire.open()
    old = certificates.client()
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        Wire(broker.tls_port, context=old)


def test_a_certificate_names_its_user(start_broker: StartBroker, certificates: Certificates, users_file: str) -> None:
    broker = start_broker(tls=certificates.options("optional"), anonymous=False, users_file=users_file)
    with wired(broker.tls_port, context=certificates.client("carla")) as wire:
        assert b"EXTERNAL" in wire.sasl()
        wire.init("EXTERNAL", None)
        assert wire.outcome() == OK
        wire.open()
        wire.attach("out", 0, "orders", sends=True)
        wire.say(transfer(0, message(user_id=b"carla")), transfer(1, message(user_id=b"anna")))
        answers = [wire.until(DISPOSITION)[1] for _ in range(2)]
        assert [b"amqp:unauthorized-access" in answer for answer in sorted(answers, key=len)] == [False, True]
    with wired(broker.tls_port, context=certificates.client("carla")) as wire:
        wire.sasl()
        wire.init("EXTERNAL", b"anna")
        assert wire.outcome() == AUTH
    with wired(broker.tls_port, context=certificates.client()) as wire:  # without a certificate
        assert b"EXTERNAL" not in wire.sasl()
        wire.init("EXTERNAL", b"carla")
        assert wire.outcome() == AUTH
    with wired(broker.tls_port, context=certificates.client("carla")) as wire:  # a password takes precedence
        assert wire.plain("anna", PASSWORDS["anna"]) == OK


def test_a_certificate_counts_with_its_whole_chain_only(
    start_broker: StartBroker, certificates: Certificates
) -> None:  # A19
    """A certificate of a CA with the same name but another key is refused, even if certificates are optional."""
    impostor = trustme.CA()
    for clients in ("optional", "required"):
        broker = start_broker(tls=certificates.options(clients), anonymous=False)
        with wired(broker.tls_port, context=certificates.client("carla")) as wire:
            assert b"EXTERNAL" in wire.sasl()
        with (
            pytest.raises((ssl.SSLError, ConnectionError, EOFError)),
            wired(broker.tls_port, context=certificates.client("carla", authority=impostor)) as wire,
        ):
            wire.sasl()
    with (
        pytest.raises((ssl.SSLError, ConnectionError, EOFError)),
        wired(broker.tls_port, context=certificates.client()) as wire,
    ):
        wire.sasl()


@pytest.mark.parametrize(
    "name", ["anonymous", "a\nb", "*", "group:x", "admin ", "\uff41\uff44\uff4d\uff49\uff4e", "#admin", "a\u202eb"]
)
def test_a_certificate_that_names_nobody(
    start_broker: StartBroker, certificates: Certificates, logged: pytest.LogCaptureFixture, name: str
) -> None:  # W14, attack 21
    broker = start_broker(tls=certificates.options("optional"), anonymous=False)
    with wired(broker.tls_port, context=certificates.client(name)) as wire:
        assert b"EXTERNAL" not in wire.sasl()
    failed = [one for one in logged.records if getattr(one, "event", "") == "login.failed"]
    (record,) = [one for one in failed if "its certificate names no user" in one.getMessage()]  # besides a disconnect
    assert record.getMessage().isprintable()
    assert record.levelname == "WARNING"


def test_a_resumed_session_is_the_same_users(start_broker: StartBroker, certificates: Certificates) -> None:  # A19
    """A session resumed with TLS 1.2 keeps its user; sessions have no tickets, so none outlives the process."""
    broker = start_broker(tls=certificates.options("optional"), anonymous=False)
    context = certificates.client("carla")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with wired(broker.tls_port, context=context) as wire:
        assert isinstance(wire.sock, ssl.SSLSocket)
        wire.sasl()
        session = wire.sock.session
        assert session is not None
        assert not session.has_ticket
    nobody = certificates.client()
    nobody.maximum_version = ssl.TLSVersion.TLSv1_2
    for own in (context, nobody):
        sock = socket.create_connection(("127.0.0.1", broker.tls_port), timeout=DEADLINE_S)
        with own.wrap_socket(sock, server_hostname="localhost", session=session if own is context else None) as again:
            again.sendall(b"AMQP\x03\x01\x00\x00")
            again.settimeout(DEADLINE_S)
            assert again.recv(8) == b"AMQP\x03\x01\x00\x00"
            assert (b"EXTERNAL" in again.recv(512)) == (own is context)


def test_no_handshake_no_connection(
    start_broker: StartBroker, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker(tls=certificates.options())
    for rubbish in (
        b"AMQP\x00\x01\x00\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(100),
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
    ):
        with wired(broker.tls_port) as wire:
            wire.send(rubbish)
            wire.rest()
    monkeypatch.setattr("cairnmq.router.connections.secured_terminal.HANDSHAKE_TIMEOUT_S", 0.1)
    for beginning in (b"", b"\x16\x03\x01"):
        with wired(broker.tls_port) as wire:
            wire.send(beginning)
            assert wire.rest() == b""
    assert_serves(broker.port)


def test_at_the_other_port_tls_is_refused(start_broker: StartBroker, logged: pytest.LogCaptureFixture) -> None:
    broker = start_broker()
    for hello in (b"AMQP\x02\x01\x00\x00", b"\x16\x03\x01\x02\x00\x01\x00\x01"):
        with wired(broker.port) as wire:
            wire.send(hello)
            assert wire.rest() == b"AMQP\x00\x01\x00\x00"
    assert logged.text.count("TLS is not spoken at this port; see --tls-port") == 2


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command makes key updates, Python can't")
def test_a_flood_of_key_updates_is_cut_off(start_broker: StartBroker, certificates: Certificates) -> None:  # A18
    broker = start_broker(tls=certificates.options())
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{broker.tls_port}", "-tls1_3"]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert client.stdin is not None
    deadline_s = time.monotonic() + DEADLINE_S
    try:
        while client.poll() is None and time.monotonic() < deadline_s:
            client.stdin.write(b"K\n")  # openssl executes one command for each read
            client.stdin.flush()
            assert_serves_now_and_then(broker.port, client)
    except BrokenPipeError:
        pass
    finally:
        client.kill()
        client.communicate()
    assert time.monotonic() < deadline_s, "the broker ends it"
    assert_serves(broker.port)


_turns = 0


def assert_serves_now_and_then(port: int, client: object) -> None:
    global _turns
    _turns += 1
    if _turns % 500 == 0:
        assert_serves(port)


def test_renegotiation_is_refused(certificates: Certificates) -> None:  # A18
    context = tls.make_context(certificates.options())
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_TICKET
    assert context.num_tickets == 0
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"cert": "/nowhere.pem"}, "--tls-cert /nowhere.pem"),
        ({"cert": __file__, "key": __file__}, "can't be used"),
        ({"ca": "/nowhere.pem", "clients": "required"}, "--tls-ca /nowhere.pem"),
        ({"clients": "required"}, "they need the CA certificates that sign them"),
    ],
)
def test_what_can_not_work_is_told_at_the_start(
    certificates: Certificates, change: dict[str, str], complaint: str
) -> None:
    given = {"cert": certificates.server, "key": certificates.server, **change}
    with pytest.raises(CairnError) as caught:
        tls.make_context(TlsOptions(**given))  # type: ignore[arg-type]
    assert complaint in str(caught.value)
    assert caught.value.remedy
