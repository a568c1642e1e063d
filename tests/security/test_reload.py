"""Reload of users, access rules, certificates and revocation lists in a running broker."""

from __future__ import annotations

import datetime
import shutil
import signal
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from cairnmq.base.accounts import users
from cairnmq.base.errors import CairnError
from cairnmq.cli.main import cairnmq
from cairnmq.router.tls import TlsOptions
from tests.harness.process import broker as broker_process
from tests.harness.security.login import AUTH, OK
from tests.harness.security.wire import CLOSE, DETACH, Wire, wired

from .conftest import PASSWORDS, Certificates, StartBroker

ALL = '[[rules]]\nwho = ["*"]\nmay = ["*"]\n'


@pytest.fixture
def own_users(tmp_path: Path, users_file: str) -> str:
    """Return the path of a users file that a test may change."""
    return str(shutil.copy(users_file, tmp_path / "users"))


def forced(wire: Wire) -> bytes:
    while True:
        code, _, body = wire.next()
        if code == CLOSE:
            return body


def logged_in(port: int, user: str) -> Wire:
    wire = Wire(port)
    assert wire.plain(user, PASSWORDS[user]) == OK
    return wire.open()


def test_connections_of_users_who_were_removed_are_closed(start_broker: StartBroker, own_users: str) -> None:
    running = start_broker(users_file=own_users, anonymous=False, insecure_auth=True)
    anna, ben = logged_in(running.port, "anna"), logged_in(running.port, "ben")
    users.change(own_users, lambda accounts: accounts.__delitem__("anna"))
    running.reload()
    assert b"amqp:connection:forced" in forced(anna)
    ben.attach("out", 0, "q", sends=True)
    with wired(running.port) as wire:
        assert wire.plain("anna", PASSWORDS["anna"]) == AUTH
    for one in (anna, ben):
        one.sock.close()


@pytest.mark.parametrize("broken", ["users", "acl", "certificate"])
def test_where_one_file_is_broken_nothing_changes(
    start_broker: StartBroker, own_users: str, tmp_path: Path, certificates: Certificates, broken: str
) -> None:
    """If any file is invalid, the reload fails, and the previous content of all files stays in effect."""
    server = Path(shutil.copy(certificates.server, tmp_path / "server.pem"))
    running = start_broker(
        acl=ALL, users_file=own_users, anonymous=False, insecure_auth=True, tls=TlsOptions(str(server), str(server), 0)
    )
    anna = logged_in(running.port, "anna")
    if broken == "users":
        Path(own_users).write_text(Path(own_users).read_text() + "nonsense\n")
    else:
        users.change(own_users, lambda accounts: accounts.__delitem__("anna"))
    acl, said = tmp_path / "acl.toml", {"acl": "[[rules", "users": '[[rules]]\nwho = ["x"]\nmay = ["*"]\n'}
    acl.write_text(said.get(broken, ALL))
    if broken == "certificate":
        server.write_text("nonsense")
    with pytest.raises(CairnError):
        running.reload()
    anna.attach("out", 0, "q", sends=True)
    anna.sock.close()
    with wired(running.tls_port, context=certificates.client()) as wire:
        wire.sasl()


def test_links_and_connections_that_the_rules_do_not_allow_any_more_go(
    start_broker: StartBroker, own_users: str, tmp_path: Path
) -> None:
    running = start_broker(acl=ALL, users_file=own_users, anonymous=False, insecure_auth=True)
    anna, ben = logged_in(running.port, "anna"), logged_in(running.port, "ben")
    anna.attach("out", 0, "mine", sends=True)
    anna.attach("in", 1, "yours", sends=False)
    (tmp_path / "acl.toml").write_text(
        '[[rules]]\nwho = ["anna"]\nmay = ["connect", "send", "create"]\n[[rules]]\nwho = ["*"]\nmay_not = ["*"]\n'
    )
    running.reload()
    assert b"unauthorized-access" in anna.until(DETACH)[1]
    anna.attach("out too", 2, "mine", sends=True)
    assert b"amqp:connection:forced" in forced(ben)
    for one in (anna, ben):
        one.sock.close()


def crl_of(authority: trustme.CA, path: Path, *certificates: x509.Certificate) -> None:
    """Write the revocation list of *authority* with the revoked *certificates* to *path*."""
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    now = datetime.datetime.now(datetime.UTC)
    built = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
    built = built.last_update(now - datetime.timedelta(days=1)).next_update(now + datetime.timedelta(days=1))
    for one in certificates:
        entry = x509.RevokedCertificateBuilder().serial_number(one.serial_number).revocation_date(now).build()
        built = built.add_revoked_certificate(entry)
    key: Any = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    path.write_bytes(built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def shown_by(context: ssl.SSLContext, port: int) -> bytes:
    with wired(port, context=context) as wire:
        assert isinstance(wire.sock, ssl.SSLSocket)
        return wire.sock.getpeercert(True) or b""


def test_a_new_certificate_is_shown_to_new_connections(
    start_broker: StartBroker, tmp_path: Path, certificates: Certificates
) -> None:
    server = Path(shutil.copy(certificates.server, tmp_path / "server.pem"))
    running = start_broker(tls=TlsOptions(str(server), str(server), 0))
    with wired(running.tls_port, context=certificates.client()) as before:
        before.open()
        old = shown_by(certificates.client(), running.tls_port)
        certificates.authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(server))
        running.reload()
        assert shown_by(certificates.client(), running.tls_port) != old
        before.attach("out", 0, "q", sends=True)


def test_connections_of_revoked_certificates_are_closed_and_none_is_opened(
    start_broker: StartBroker, tmp_path: Path, certificates: Certificates
) -> None:
    crl = tmp_path / "crl.pem"
    crl_of(certificates.authority, crl)
    running = start_broker(tls=replace(certificates.options("required"), crl=str(crl)), anonymous=False)
    clients = {name: certificates.client(name) for name in ("carla", "dora")}
    wires = {}
    for name, context in clients.items():
        wire = wires[name] = Wire(running.tls_port, context=context)
        wire.sasl()
        wire.init("EXTERNAL", None)
        assert wire.outcome() == OK
        wire.open()
    carla = x509.load_pem_x509_certificate(certificates.shown_by_client("carla"))
    crl_of(certificates.authority, crl, carla)
    running.reload()
    assert b"amqp:connection:forced" in forced(wires["carla"])
    wires["dora"].attach("out", 0, "q", sends=True)
    with (
        pytest.raises((ssl.SSLError, ConnectionError, EOFError)),
        wired(running.tls_port, context=clients["carla"]) as wire,
    ):
        wire.sasl()
    for wire in wires.values():
        wire.sock.close()


def test_new_authority_of_clients_is_trusted_after_a_reload(
    start_broker: StartBroker, tmp_path: Path, certificates: Certificates
) -> None:  # A6
    authorities = Path(shutil.copy(certificates.ca, tmp_path / "ca.pem"))
    running = start_broker(tls=replace(certificates.options("required"), ca=str(authorities)), anonymous=False)
    other = trustme.CA()

    def outcome() -> int:
        with wired(running.tls_port, context=certificates.client("carla", authority=other)) as wire:
            wire.sasl()
            wire.init("EXTERNAL", None)
            return wire.outcome()

    with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
        outcome()
    authorities.write_bytes(authorities.read_bytes() + other.cert_pem.bytes())
    running.reload()
    assert outcome() == OK


@pytest.mark.parametrize("content", ["", "nonsense", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"])
def test_a_list_that_is_none_is_told_at_the_start(
    start_broker: StartBroker, tmp_path: Path, certificates: Certificates, content: str
) -> None:
    (tmp_path / "crl.pem").write_text(content)
    with pytest.raises(CairnError, match="--tls-crl"):
        start_broker(tls=replace(certificates.options("required"), crl=str(tmp_path / "crl.pem")))


def test_by_signal_and_by_management(tmp_path: Path) -> None:
    rules = tmp_path / "acl.toml"
    rules.write_text(ALL)
    with broker_process(tmp_path / "store", "--acl-file", str(rules)) as running:
        running.process.send_signal(signal.SIGHUP)
        running.wait_for(" reloaded")
        rules.write_text("[[rules")
        running.process.send_signal(signal.SIGHUP)
        running.wait_for("reload failed, nothing is changed: .*acl.toml")
        ask = ["ctl", "--timeout", "60", "--url", f"127.0.0.1:{running.port}", "reload"]
        refused = CliRunner().invoke(cairnmq, ask)
        assert refused.exit_code == 1
        rules.write_text(ALL)
        done = CliRunner().invoke(cairnmq, ask)
        assert (done.exit_code, done.output) == (0, "reloaded; closed 0 connections and links\n")
