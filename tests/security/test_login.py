"""Tests of logins over a socket: all SASL mechanisms, and malformed or misplaced handshakes."""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from proton import SASL as PROTONS_SASL
from proton import Message
from proton.utils import BlockingConnection
from scramp import ScramClient
from scramp.core import Gs2Header

from cairnmq.amqp.sasl.handshake import MAX_AHEAD_BYTES
from cairnmq.base.accounts import credentials, users
from cairnmq.base.accounts.credentials import FEWEST_ITERATIONS, make
from cairnmq.broker_plugin.run import RunningBroker
from cairnmq.router.admission import login_gate as gate
from tests.harness.security.login import AUTH, OK, SYS_TEMP
from tests.harness.security.wire import (
    AMQP,
    ATTACH,
    BEGIN,
    CHALLENGE,
    CLOSE,
    DEADLINE_S,
    NULL,
    OPEN,
    OUTCOME,
    SASL,
    Wire,
    attach,
    frame,
    performative,
    string,
    uint,
    wired,
)  # fmt: skip

from .conftest import PASSWORDS, Certificates, StartBroker, assert_serves


@pytest.mark.parametrize("name", PASSWORDS)
def test_scram_lets_in_who_has_the_password(guarded: RunningBroker, name: str) -> None:
    with wired(guarded.port) as wire:
        assert wire.scram(name, PASSWORDS[name]) == OK
        wire.open()
    with wired(guarded.port) as wire:
        assert wire.scram(name, "not it") == AUTH
        assert wire.rest() == b""


@pytest.mark.parametrize(("authzid", "expected"), [("anna", OK), ("ben", AUTH)], ids=["own", "of another user"])
def test_scram_with_an_authzid(guarded: RunningBroker, authzid: str, expected: int) -> None:  # P7
    """RFC 5802, 5.1: a client may name the user that it acts for, here itself; the final message repeats that."""
    client = ScramClient(["SCRAM-SHA-256"], "anna", PASSWORDS["anna"])
    first = client.get_client_first()
    client.gs2_header = _Header(f"n,a={authzid},")
    with wired(guarded.port) as wire:
        wire.sasl()
        wire.init("SCRAM-SHA-256", f"n,a={authzid},{first[3:]}".encode())
        code, fields, _ = wire.next()
        if code == CHALLENGE:
            assert isinstance(fields[0], bytes)
            client.set_server_first(fields[0].decode())
            wire.respond(client.get_client_final().encode())
            fields, _ = wire.until(OUTCOME)
        assert fields[0] == expected


class _Header(Gs2Header):  # type: ignore[misc]  # scramp is untyped
    """A GS2 header as it is sent."""

    def __init__(self, text: str) -> None:
        super().__init__("n", None)
        self._text = text

    def __str__(self) -> str:
        return self._text


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_protons_client_logs_in(guarded: RunningBroker, mechanism: str) -> None:
    options = {"allowed_mechs": mechanism, "allow_insecure_mechs": True, "timeout": DEADLINE_S}
    url = f"127.0.0.1:{guarded.port}"
    if mechanism != "PLAIN" and not PROTONS_SASL.extended():
        pytest.skip("this build of proton's client has no SCRAM: it was built where there is no libsasl2-dev")
    try:
        connection = BlockingConnection(url, user="anna", password=PASSWORDS["anna"], **options)
    except Exception as error:
        if "No worthy mechs found" in str(error) or "no mechanism available" in str(error):
            pytest.skip("SASL's own library has no SCRAM here: there is no libsasl2-modules")
        raise
    connection.create_sender("orders").send(Message(body="from anna", user_id=b"anna"))
    assert connection.create_receiver("orders").receive(timeout=DEADLINE_S).body == "from anna"
    connection.close()
    with pytest.raises(Exception, match=r"(?i)authentication"):
        BlockingConnection(url, user="anna", password="wrong", **options)


@pytest.mark.parametrize(
    ("user", "password", "acting", "code"),
    [
        ("anna", PASSWORDS["anna"], "", OK),
        ("anna", PASSWORDS["anna"], "anna", OK),
        ("anna", PASSWORDS["anna"], "ben", AUTH),
        ("anna", PASSWORDS["ben"], "", AUTH),
        ("anna", "", "", AUTH),
        ("", "", "", AUTH),
        ("nobody", "x", "", AUTH),
    ],
)
def test_plain(guarded: RunningBroker, user: str, password: str, acting: str, code: int) -> None:
    with wired(guarded.port) as wire:
        assert wire.plain(user, password, acting) == code


def test_plain_is_offered_over_tls_only_unless_allowed(
    start_broker: StartBroker, users_file: str, certificates: Certificates
) -> None:
    broker = start_broker(users_file=users_file, anonymous=False, tls=certificates.options())
    with wired(broker.port) as wire:
        offered = wire.sasl()
        assert (b"SCRAM-SHA-256" in offered, b"PLAIN" in offered, b"ANONYMOUS" in offered) == (True, False, False)
        wire.init("PLAIN", f"\0anna\0{PASSWORDS['anna']}".encode())
        assert wire.outcome() == AUTH
    with wired(broker.tls_port, context=certificates.client()) as wire:
        assert wire.plain("anna", PASSWORDS["anna"]) == OK
        wire.open()
    with wired(broker.tls_port, context=certificates.client()) as wire:
        assert b"EXTERNAL" not in wire.sasl()


def test_a_broken_handshake_message_ends_that_connection_only(guarded: RunningBroker) -> None:  # A9
    chance = random.Random(20261121)
    plain = f"\0anna\0{PASSWORDS['anna']}".encode()
    scram = ScramClient(["SCRAM-SHA-256"], "anna", "x").get_client_first().encode()
    broken = [
        b"",
        b"\0",
        b"\0\0",
        b"\0\0\0\0",
        b"\xff\xfe\0\xff\0\xff",
        b"n,,",
        b"n,,n=,r=",
        b"n,,n==,r=x",
        b"p=x,,n=a,r=b",
    ]
    broken += [
        b"n,,n=anna",
        b"n,,r=x",
        b"y,a=ben,n=anna,r=x",
        b"n,,n=anna,r=" + b"x" * 400,
        b"n,,m=ext,n=a,r=b",
        b"," * 300,
    ]
    for complete in (plain, scram):
        for _ in range(60):
            changed = bytearray(complete)
            for _ in range(chance.randrange(1, 5)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            broken.append(bytes(changed[: chance.randrange(len(changed) + 1)]))
    for number, data in enumerate(broken):
        with wired(guarded.port) as wire:
            wire.sasl()
            wire.init(("PLAIN", "SCRAM-SHA-256")[number % 2], data)
            code, fields, _ = wire.next()
            if code == CHALLENGE:
                wire.respond(data)
                code, fields, _ = wire.next()
            assert (code, fields[0]) == (OUTCOME, AUTH)
            assert wire.rest() == b""
    with wired(guarded.port) as wire:
        assert wire.scram("anna", PASSWORDS["anna"]) == OK


@pytest.mark.parametrize(
    "final", [b"", b"c=biws", b"c=biws,r=x,p=", b"c=!,r=x,p=!", b"p=,r=,c=", b"\xff", b"c=biws,r=x,p=" + b"A" * 300]
)
def test_a_broken_end_of_scram(guarded: RunningBroker, final: bytes) -> None:  # A9
    with wired(guarded.port) as wire:
        wire.sasl()
        wire.init("SCRAM-SHA-256", ScramClient(["SCRAM-SHA-256"], "anna", "x").get_client_first().encode())
        wire.until(CHALLENGE)
        wire.respond(final)
        assert wire.outcome() == AUTH


def flow_of(broker: RunningBroker, mechanism: str, user: str) -> tuple[list[tuple[int, int]], bytes]:
    """Log in with a wrong password; return the codes and sizes of the frames of the broker, and the salt."""
    client = ScramClient(["SCRAM-SHA-256"], user, "wrong")
    salt, seen = b"", []
    with wired(broker.port) as wire:
        wire.sasl()
        wire.init(
            mechanism, f"\0{user}\0wrong".encode() if mechanism == "PLAIN" else client.get_client_first().encode()
        )
        while True:
            code, fields, body = wire.next()
            seen.append((code, len(body)))
            if code == OUTCOME:
                assert fields == [AUTH]
                assert wire.rest() == b""
                return seen, salt
            assert isinstance(fields[0], bytes)
            client.set_server_first(bytes(fields[0]).decode())
            salt = fields[0].split(b",")[1]
            wire.respond(client.get_client_final().encode())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_user_there_is_none_of_meets_the_same(guarded: RunningBroker, mechanism: str) -> None:  # A10
    known, unknown = flow_of(guarded, mechanism, "anna"), flow_of(guarded, mechanism, "jane")
    assert known[0] == unknown[0]
    assert flow_of(guarded, mechanism, "jane")[1] == unknown[1], "the salt does not change either"


def test_a_user_there_is_none_of_is_as_much_work(
    guarded: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:  # A10
    hashed: list[int] = []
    real = credentials.SCRAM.make_auth_info

    class Counting:
        def make_auth_info(self, password: str, **how: Any) -> Any:
            hashed.append(how["iteration_count"])
            return real(password, **how)

    monkeypatch.setattr(credentials, "SCRAM", Counting())
    for user in ("anna", "nobody"):
        with wired(guarded.port) as wire:
            assert wire.plain(user, "wrong") == AUTH
    assert hashed == [FEWEST_ITERATIONS] * 2


def test_nothing_but_sasl_is_reachable_before_it_is_done(guarded: RunningBroker) -> None:  # A11
    opening = AMQP + frame(performative(OPEN, string("sly")))
    with wired(guarded.port) as wire:
        wire.send(opening)
        assert wire.rest() == SASL
    for beginning in (SASL + opening, SASL + frame(performative(OPEN, string("sly")))):
        with wired(guarded.port) as wire:
            wire.send(beginning)
            answer = wire.rest()
            assert answer.startswith(SASL)
            assert AMQP not in answer
    with wired(guarded.port) as wire:
        assert b"ANONYMOUS" not in wire.sasl()
        wire.init("ANONYMOUS", b"")
        wire.send(opening)
        assert wire.outcome() == AUTH
        assert wire.rest() == b""


def test_what_follows_a_wrong_password_is_not_looked_at(guarded: RunningBroker) -> None:  # A11
    """Input after a wrong password is not processed, even if it arrives with the password."""
    begin = performative(BEGIN, NULL, uint(0), uint(9), uint(9))
    opening = AMQP + frame(performative(OPEN, string("sly"))) + frame(begin)
    with wired(guarded.port) as wire:
        wire.send(SASL + sasl_init("PLAIN", b"\0anna\0wrong") + opening)
        assert wire.read(8) == SASL
        assert wire.outcome() == AUTH
        assert wire.rest() == b""
    with wired(guarded.port) as wire:  # with the correct password, the input is processed
        wire.send(SASL + sasl_init("PLAIN", f"\0anna\0{PASSWORDS['anna']}".encode()) + opening)
        assert wire.read(8) == SASL
        assert wire.outcome() == OK
        assert wire.read(8) == AMQP
        wire.until(BEGIN)
    with wired(guarded.port) as wire:
        wire.send(SASL + sasl_init("PLAIN", b"\0anna\0wrong") + bytes(MAX_AHEAD_BYTES + 1))
        assert AMQP not in wire.rest()


def test_login_is_followed_by_all_frames_that_came_with_it(guarded: RunningBroker) -> None:
    """All frames that arrive with a login are processed, even more control frames than fit into a turn."""
    begin = performative(BEGIN, NULL, uint(0), uint(9), uint(9))
    attaches = b"".join([frame(attach(f"link {number}", number, "q", sends=True)) for number in range(40)])
    opening = AMQP + frame(performative(OPEN, string("sly"))) + frame(begin) + attaches
    assert len(opening) < MAX_AHEAD_BYTES
    with wired(guarded.port) as wire:
        wire.send(SASL + sasl_init("PLAIN", f"\0anna\0{PASSWORDS['anna']}".encode()) + opening)
        assert wire.read(8) == SASL
        assert wire.outcome() == OK
        assert wire.read(8) == AMQP
        answers = [wire.until(ATTACH)[1] for _ in range(40)]
    assert all(b"link %d" % number in answer for number, answer in enumerate(answers))


def sasl_init(mechanism: str, response: bytes) -> bytes:
    fields = b"\xa3" + bytes((len(mechanism),)) + mechanism.encode() + b"\xa0" + bytes((len(response),)) + response
    return frame(b"\x00\x53\x41\xc0" + bytes((len(fields) + 1, 2)) + fields, kind=1)


def test_frames_before_the_login_are_short(guarded: RunningBroker) -> None:  # A8
    for size in (0, 7, 513, 8193, 1 << 31):
        with wired(guarded.port) as wire:
            wire.sasl()
            wire.send(size.to_bytes(4) + b"\x02\x01\x00\x00")
            assert wire.rest() == b""


def test_where_a_proxy_speaks_first_nobody_is_let_in(open_to_all: RunningBroker) -> None:  # A12
    """PROXY headers are refused, as the address of a client is taken from the socket only."""
    for header in (b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n", b"\r\n\r\n\x00\r\nQUIT\n!\x11\0\x0c"):
        with wired(open_to_all.port) as wire:
            wire.send(header + AMQP + frame(performative(OPEN, string("sly"))))
            assert wire.rest() == AMQP


def test_who_is_removed_can_not_log_in_any_more(start_broker: StartBroker, tmp_path: Path) -> None:
    path = str(tmp_path / "users")
    kept = make("a stone", FEWEST_ITERATIONS)
    users.change(path, lambda accounts: accounts.update(anna=kept, ben=kept))
    broker = start_broker(users_file=path, anonymous=False)
    with wired(broker.port) as wire:
        assert wire.scram("anna", "a stone") == OK
    users.change(path, lambda accounts: accounts.__delitem__("anna"))
    with wired(broker.port) as anna, wired(broker.port) as ben:
        assert anna.scram("anna", "a stone") == AUTH
        assert ben.scram("ben", "a stone") == OK
    users.change(path, lambda accounts: accounts.update(anna=kept))
    with wired(broker.port) as wire:
        assert wire.scram("anna", "a stone") == OK


def test_others_are_served_while_a_password_is_hashed(
    start_broker: StartBroker, users_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashing runs in a separate thread; logins beyond the limit of waiting logins fail with `sys-temp`."""
    monkeypatch.setattr(gate, "MOST_WAITING", 2)
    monkeypatch.setattr("cairnmq.router.connections.terminal.OPEN_TIMEOUT_S", 600.0)  # no timeout during this test
    broker = start_broker(users_file=users_file, insecure_auth=True)
    going_on, real = threading.Event(), credentials.SCRAM.make_auth_info

    class Slow:
        def make_auth_info(self, password: str, **how: Any) -> Any:
            assert going_on.wait(DEADLINE_S)
            return real(password, **how)

    monkeypatch.setattr(credentials, "SCRAM", Slow())
    waiting = [Wire(broker.port) for _ in range(2)]
    for wire in waiting:
        wire.sasl()
        wire.init("PLAIN", f"\0anna\0{PASSWORDS['anna']}".encode())
        assert_serves(broker.port)
    with wired(broker.port) as wire:
        assert wire.plain("anna", "x") == SYS_TEMP
    waiting[0].sock.close()
    assert_serves(broker.port)
    going_on.set()
    assert waiting[1].outcome() == OK
    waiting[1].sock.close()


def test_a_delayed_login_yields_to_other_addresses(
    start_broker: StartBroker, users_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit, the newest login of the address with the most logins fails; closed connections free their slots."""
    monkeypatch.setattr(gate, "MOST_DELAYED", 8)  # six delayed untrusted logins, two per address
    monkeypatch.setattr("cairnmq.router.connections.terminal.OPEN_TIMEOUT_S", 600.0)
    for name, value in (("FREE_FAILURES", 0), ("FIRST_DELAY_S", 600.0), ("MOST_DELAY_S", 600.0)):
        monkeypatch.setattr(f"cairnmq.base.accounts.guesses.{name}", value)
    broker = start_broker(users_file=users_file, insecure_auth=True)

    def begun(address: int) -> Wire:
        wire = Wire(broker.port, source=f"127.0.0.{address}")
        wire.sasl()
        wire.init("PLAIN", f"\0anna\0{PASSWORDS['anna']}".encode())
        assert_serves(broker.port)
        return wire

    waiting = [begun(address) for address in (2, 2, 3, 3, 4, 4)]
    waiting.append(begun(5))
    assert waiting[5].outcome() == SYS_TEMP
    assert waiting[5].rest() == b""
    for wire in waiting:
        wire.sock.close()
    assert_serves(broker.port)
    waiting = [begun(address) for address in (6, 6, 7, 7, 8, 8)]
    assert not select.select([wire.sock for wire in waiting], [], [], 0)[0]
    for wire in waiting:
        wire.sock.close()


def test_who_does_not_finish_is_dropped(guarded: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cairnmq.router.connections.terminal.OPEN_TIMEOUT_S", 0.1)
    for beginning in (b"", SASL):
        with socket.create_connection(("127.0.0.1", guarded.port), timeout=DEADLINE_S) as sock:
            sock.sendall(beginning)
            begun_s = time.monotonic()
            while sock.recv(4096):
                pass
            assert time.monotonic() - begun_s < DEADLINE_S


def ending(wire: Wire, password: str) -> bytes:
    """Log in as Anna and attach at once; return the close frame, or `b""` if the link is attached."""
    assert wire.scram("anna", password) == OK
    wanted = (performative(OPEN, string("third")), performative(BEGIN, NULL, uint(0), uint(99), uint(99)))
    wire.send(AMQP)
    wire.say(*wanted, attach("l", 0, "orders", sends=True))
    assert wire.read(8) == AMQP
    while True:
        code, _, body = wire.next()
        if code in (ATTACH, CLOSE):
            return body if code == CLOSE else b""


def test_connections_of_a_user_are_counted(start_broker: StartBroker, users_file: str) -> None:
    broker = start_broker(users_file=users_file, anonymous=False, max_connections_per_user=2)
    held = [Wire(broker.port) for _ in range(2)]
    for wire in held:
        assert wire.scram("anna", PASSWORDS["anna"]) == OK
        wire.open()
    with wired(broker.port) as third:
        assert b"amqp:resource-limit-exceeded" in ending(third, PASSWORDS["anna"])
    with wired(broker.port) as other:
        assert other.scram("ben", PASSWORDS["ben"]) == OK
        other.open()
    held.pop().sock.close()
    deadline_s = time.monotonic() + DEADLINE_S
    while True:  # the broker may detect the closed connection later
        with wired(broker.port) as again:
            if not ending(again, PASSWORDS["anna"]):
                break
        assert time.monotonic() < deadline_s
    held.pop().sock.close()


def test_no_secret_is_in_the_log(
    guarded: RunningBroker, logged: pytest.LogCaptureFixture, users_file: str
) -> None:  # A21
    for password in (PASSWORDS["anna"], "a wrong stone"):
        with wired(guarded.port) as wire:
            wire.plain("anna", password)
    with wired(guarded.port) as wire:
        assert wire.scram("anna", PASSWORDS["anna"]) == OK
        wire.open()
    assert "login of user 'anna' failed (PLAIN): wrong user name or password" in logged.text
    kept = Path(users_file).read_text().replace("$", ":").replace("\n", ":").split(":")
    for secret in [*PASSWORDS.values(), "a wrong stone", *(part for part in kept if len(part) > 20)]:
        assert secret not in logged.text
