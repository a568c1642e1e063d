"""Tests of outgoing connections of the broker: authentication, targets, failures, and protection of secrets."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from urllib.parse import quote

import pytest
import trustme
from click.testing import CliRunner

from cairnmq.amqp.connector_target import Target, parse
from cairnmq.amqp.sasl.client import Identity
from cairnmq.amqp.sasl.client_handshake import ClientHandshake
from cairnmq.amqp.sasl.frames import SASL_HEADER
from cairnmq.amqp.sasl.handshake import MAX_AHEAD_BYTES, Stage
from cairnmq.base.errors import CairnError
from cairnmq.broker_plugin.run import RunningBroker
from cairnmq.cli.main import cairnmq
from cairnmq.tools.soak.servers import free_port
from tests.harness.process import BrokerProcess
from tests.harness.security.connectors import ANNA, connector_of, until, users_of

from .conftest import PASSWORDS, Certificates, StartBroker


def is_up(broker: RunningBroker) -> None:
    until(lambda: connector_of(broker).state == "up", f"it is not up: {connector_of(broker).reason}")


def fails(broker: RunningBroker) -> str:
    until(lambda: connector_of(broker).state == "waiting", "it should fail")  # the state is set after the reason
    return str(connector_of(broker).reason)


def ctl(running: BrokerProcess, *arguments: str) -> str:
    """Run `cairnmq ctl` and return the output."""
    port = next(line.rpartition(":")[2] for line in running.lines if " listening on " in line)
    found = CliRunner().invoke(cairnmq, ["ctl", "--url", f"amqp://127.0.0.1:{port}", "--timeout", "60", *arguments])
    assert found.exit_code == 0, found.output
    return found.output


def test_a_password_is_sent_as_scram(start_broker: StartBroker, guarded: RunningBroker) -> None:
    near = start_broker(connect_to=(f"amqp://{ANNA}@127.0.0.1:{guarded.port}",))
    is_up(near)
    until(lambda: users_of(guarded) == ["anna"], "the other one knows who it is")
    assert connector_of(near).connection.container == "cairnmq"


def test_a_wrong_password_is_tried_again_later(
    start_broker: StartBroker, guarded: RunningBroker, logged: pytest.LogCaptureFixture
) -> None:
    near = start_broker(connect_to=(f"amqp://anna:wrong-one@127.0.0.1:{guarded.port}",))
    assert "wrong user name or password" in fails(near)
    until(lambda: connector_of(near).failures > 2, "it should be tried again")
    assert "wrong-one" not in logged.text
    assert "wrong-one" not in repr(connector_of(near).target)


def test_plain_is_not_sent_in_the_clear() -> None:
    front = ClientHandshake(Identity("anna", "secret"), "mq", secure=False)
    answer, _ = front.feed(SASL_HEADER + _plain())
    assert front.stage is Stage.REFUSED
    assert b"secret" not in answer
    assert "insecure-auth" in front.reason
    for identity, secure in ((Identity("anna", "secret"), True), (Identity("anna", "secret", insecure=True), False)):
        front = ClientHandshake(identity, "mq", secure=secure)
        answer, _ = front.feed(SASL_HEADER + _plain())
        assert b"\0anna\0secret" in answer


def _plain() -> bytes:
    body = b"\x00\x53\x40\xc0\x0b\x01\xe0\x08\x01\xa3\x05PLAIN"
    return (len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body


@pytest.mark.parametrize(
    "said",
    [b"HTTP/1.1 400 Bad Request\r\n", SASL_HEADER + b"\xff" * 16, SASL_HEADER + b"\0\0\0\x10\x02\x01\0\0garbage!",
     b"AMQP\x00\x01\x00\x00", SASL_HEADER + b"\x00\x00\x00\x0d\x02\x01\x00\x00\x00\x53\x44\x45\x00"],
)  # fmt: skip


def test_what_is_no_login_is_refused(said: bytes) -> None:  # A9
    front = ClientHandshake(Identity(), "mq", secure=False)
    for at in range(len(said)):
        front.feed(said[at : at + 1])
        if front.stage is Stage.REFUSED:
            break
    assert front.stage is Stage.REFUSED
    assert front.reason


def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    front = ClientHandshake(Identity("anna", "secret"), "mq", secure=True)
    offer = b"\x00\x53\x40\xc0\x13\x01\xe0\x10\x01\xa3\x0dSCRAM-SHA-256"
    ok = b"\x00\x53\x44\xc0\x03\x01\x50\x00"
    for body in (offer, ok):
        front.feed((SASL_HEADER if body is offer else b"") + (len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body)
    assert front.stage is Stage.REFUSED
    assert "has not proved" in front.reason


def test_a_server_that_goes_on_and_on_while_it_is_answered_is_left() -> None:  # A8
    """Input that exceeds the limit of bytes held while the password is hashed ends the login."""
    front = ClientHandshake(Identity("anna", "secret"), "mq", secure=True)
    offer = b"\x00\x53\x40\xc0\x13\x01\xe0\x10\x01\xa3\x0dSCRAM-SHA-256"
    answer, _ = front.feed(SASL_HEADER + (len(offer) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + offer)
    nonce = re.search(rb"r=([^,\xa1]+)", answer)
    assert nonce is not None
    said = b"r=" + nonce[1] + b"more,s=QUFBQUFBQUFBQUFBQUFBQQ==,i=4096"
    body = b"\x00\x53\x42\xc0" + bytes((len(said) + 3, 1, 0xA0, len(said))) + said
    front.feed((len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body)
    assert front.check is not None
    for _ in range(MAX_AHEAD_BYTES // 1000):
        front.feed(bytes(1000))
    assert front.check is not None
    front.feed(bytes(1000))
    assert front.stage is Stage.REFUSED
    assert not front._held


@pytest.mark.parametrize("trusts", [True, False])
def test_the_servers_certificate_is_verified(
    start_broker: StartBroker, certificates: Certificates, tmp_path: Path, trusts: bool
) -> None:
    far = start_broker(tls=certificates.options(), plain=False)
    other = tmp_path / "other-ca.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    near = start_broker(connect_to=(f"amqps://127.0.0.1:{far.tls_port}?ca={certificates.ca if trusts else other}",))
    if trusts:
        is_up(near)
    else:
        assert "certificate" in fails(near)


def test_the_name_in_the_certificate_has_to_fit(start_broker: StartBroker, certificates: Certificates) -> None:
    far = start_broker(tls=certificates.options(), plain=False)
    url = f"amqps://127.0.0.1:{far.tls_port}?ca={certificates.ca}&hostname=mq.example.org"
    assert "mq.example.org" in fails(start_broker(connect_to=(url,)))


def test_external(start_broker: StartBroker, certificates: Certificates, users_file: str) -> None:
    far = start_broker(tls=certificates.options("required"), plain=False, anonymous=False, users_file=users_file)
    certificates.client("carla")
    path = certificates._directory / "client-'carla'.pem"
    near = start_broker(
        connect_to=(f"amqps://localhost:{far.tls_port}?ca={certificates.ca}&cert={quote(str(path))}",)
    )
    is_up(near)
    until(lambda: users_of(far) == ["carla"], "the other one knows who it is")


def test_it_comes_back_and_waits_longer_each_time(start_broker: StartBroker) -> None:
    near = start_broker(connect_to=(f"amqp://127.0.0.1:{free_port()}",))
    assert "refused" in fails(near).lower()
    until(lambda: connector_of(near).failures >= 3, "it should be tried again")
    assert connector_of(near).state == "waiting"


def test_it_goes_to_the_next_place_and_back(start_broker: StartBroker) -> None:  # D23, D28
    far = start_broker()
    port = free_port()
    near = start_broker(connect_to=(f"amqp://127.0.0.1:{port}?failover=127.0.0.1:{port},127.0.0.1:{far.port}",))
    is_up(near)
    assert connector_of(near).failures == 2


@pytest.mark.parametrize("said", ["a:b", ":5672", "user@a:1", "a/b", "a,,b", "a:1 "])
def test_a_next_place_that_is_none_is_refused(said: str) -> None:
    with pytest.raises(CairnError, match="failover="):
        parse(f"amqp://mq?failover={quote(said)}")


def test_next_places_are_as_the_first_one_but_for_where_they_are() -> None:
    found = parse("amqps://mq?name=x&ca=c&failover=b,[::1]:99")
    assert [one.place for one in found.turns] == ["amqps://mq:5671", "amqps://b:5671", "amqps://[::1]:99"]
    assert {(one.name, one.ca, one.tls) for one in found.turns} == {("x", "c", True)}


def test_what_only_accepts_is_given_up_on(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cairnmq.router.connections.terminal.OPEN_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        near = start_broker(connect_to=(f"amqp://127.0.0.1:{silent.getsockname()[1]}",))
        fails(near)


def test_files_of_the_broker_are_not_management_s_to_send(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("secret\n")
    url = "amqp://anna@mq?password-file="
    assert parse(url + "pw", secrets_dir=str(tmp_path)).identity.password == "secret"
    for path in ("/etc/passwd", "../pw", ".pw", "a/b"):
        with pytest.raises(CairnError, match="secrets-dir"):
            parse(url + path, secrets_dir=str(tmp_path))
    with pytest.raises(CairnError, match="secrets-dir"):
        parse(url + "pw", secrets_dir="")
    for bad in ("amqp://a:b@mq", "amqp://a@mq?password-env=PATH"):
        with pytest.raises(CairnError, match="may not have a password"):
            parse(bad, secrets_dir=str(tmp_path))


@pytest.mark.parametrize(
    "url",
    ["", "http://mq", "amqp://", "amqp://mq:x", "amqp://mq/path", "amqp://mq?role=king", "amqp://mq?cost=0",
     "amqp://mq?what=1", "amqp://anna@mq", "amqp://anna@mq?password-file=/no/such/file", "amqp://[::1",
     "amqp://anna:secret@mq?what=1"],
)  # fmt: skip


def test_wrong_urls_are_refused_without_their_secrets(url: str) -> None:
    with pytest.raises(CairnError) as error:
        parse(url)
    assert "secret" not in str(error.value)


def test_a_url_says_all() -> None:
    found = parse("amqps://anna:p%40ss@[::1]:99?name=x&role=inter-router&cost=3&hostname=h&ca=c")
    assert found == Target(
        "x", "::1", 99, Identity("anna", "p@ss"), True, "c", hostname="h", role="inter-router", cost=3
    )
    assert "p@ss" not in repr(found) + found.place


def test_no_secret_is_shown_by_ps_or_the_log(tmp_path: Path, guarded: RunningBroker) -> None:
    url = f"amqp://anna:one%20stone@127.0.0.1:{guarded.port}?name=there"
    running = BrokerProcess(tmp_path / "store", "--port", "0", "-v", "--connect-to", url).ready()
    try:
        until(lambda: users_of(guarded) == ["anna"], "it should connect")
        shown = Path(f"/proc/{running.process.pid}/cmdline").read_bytes()
        assert b"one%20stone" not in shown
        assert b"--connect-to" in shown
        told = ""

        def is_up_here() -> bool:  # the other broker is connected a moment earlier
            nonlocal told
            told = ctl(running, "--json", "connectors", "show", "there")
            return '"state": "up"' in told

        until(is_up_here, "it should know that it is")
        assert "stone" not in told + "\n".join(running.lines)
    finally:
        running.stop()


def test_management_makes_and_takes_away(tmp_path: Path, guarded: RunningBroker) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "pw").write_text(PASSWORDS["anna"])
    options = ("--port", "0", "--secrets-dir", str(tmp_path / "secrets"))

    running = BrokerProcess(tmp_path / "store", *options).ready()
    try:
        ctl(running, "connectors", "create", "up", f"amqp://anna@127.0.0.1:{guarded.port}?password-file=pw")
        ctl(running, "link-routes", "create", "far.*", "up", "--direction", "send")
        until(lambda: users_of(guarded) == ["anna"], "it should connect")
        assert "far.*" in ctl(running, "link-routes", "list")
        ctl(running, "auto-links", "create", "jobs", "in", "here", "up", "--external", "far")
        until(lambda: '"state": "up"' in ctl(running, "--json", "auto-links", "show", "jobs"), "it should be up")
        assert ctl(running, "routers", "list").split() == ["name", "next", "cost", "addresses", "sent", "received"]
        running.stop()
        until(lambda: not users_of(guarded), "it should go")
        running = BrokerProcess(tmp_path / "store", *options).ready()
        until(lambda: users_of(guarded) == ["anna"], "it should come back with the broker")
        assert "far.*" in ctl(running, "link-routes", "list")
        until(lambda: '"state": "up"' in ctl(running, "--json", "auto-links", "show", "jobs"), "it should be up again")
        ctl(running, "auto-links", "delete", "jobs", "--yes")
        assert "jobs" not in ctl(running, "auto-links", "list")
        until(lambda: not guarded._broker.nodes.queues["far"].consumers, "the link should go")
        ctl(running, "connectors", "delete", "up", "--yes")
        ctl(running, "link-routes", "delete", "far.*", "--yes")
        until(lambda: not users_of(guarded), "it should go")
        assert "127.0.0.1" not in ctl(running, "connectors", "list")
    finally:
        running.stop()


def test_new_password_and_certificate_of_a_connector_are_used_after_a_reload(
    start_broker: StartBroker, certificates: Certificates, users_file: str, tmp_path: Path
) -> None:  # A6
    tls = certificates.options("optional")
    far = start_broker(tls=tls, plain=False, anonymous=False, users_file=users_file)
    password, certificate, ca = tmp_path / "password", tmp_path / "own.pem", tmp_path / "ca-of-far.pem"
    password.write_text("wrong")
    trustme.CA().cert_pem.write_to_path(str(ca))
    certificates.client("dora")
    certificate.write_bytes(certificates.shown_by_client("dora"))
    place = f"127.0.0.1:{far.tls_port}"
    near = start_broker(connect_to=(f"amqps://anna@{place}?ca={ca}&password-file={password}",))
    certified = start_broker(connect_to=(f"amqps://{place}?ca={certificates.ca}&cert={certificate}",))
    is_up(certified)
    until(lambda: users_of(far) == ["dora"], "the other one knows the certificate")
    assert "certificate" in fails(near)
    ca.write_bytes(Path(certificates.ca).read_bytes())
    password.write_text(PASSWORDS["anna"])
    certificates.client("carla")
    certificate.write_bytes(certificates.shown_by_client("carla"))
    for broker in (near, certified):
        broker.reload()
    is_up(near)
    certified._post(connector_of(certified).connection.expel, "so that it connects again")
    until(lambda: sorted(users_of(far)) == ["anna", "carla"], "the other one knows the new ones")


def test_reload_fails_if_a_file_of_a_connector_is_invalid(
    start_broker: StartBroker, guarded: RunningBroker, tmp_path: Path
) -> None:  # A6
    password = tmp_path / "password"
    password.write_text(PASSWORDS["anna"])
    near = start_broker(connect_to=(f"amqp://anna@127.0.0.1:{guarded.port}?password-file={password}",))
    is_up(near)
    password.write_text("")
    with pytest.raises(CairnError, match="there is no password in"):
        near.reload()
    assert connector_of(near).state == "up"
