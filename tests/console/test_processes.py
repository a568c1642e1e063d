"""Tests of the console over TLS, and of the restart of the console process by its broker."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import time
from http.client import HTTPSConnection
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.harness.console.browser import ApiClient
from tests.harness.console.own_process import console_process
from tests.harness.console.processes import descendants
from tests.harness.process import DEADLINE_S, broker

CONSOLE = "cairnmq.console.beside"
trustme = pytest.importorskip("trustme")


class Certificate(NamedTuple):
    """The files of a certificate for 127.0.0.1 and of the CA that issued it."""

    path: Path
    ca: Path


def certificate(directory: Path, name: str) -> Certificate:
    authority = trustme.CA()
    found = Certificate(directory / f"{name}.pem", directory / f"{name}-ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(found.path)
    authority.cert_pem.write_to_path(found.ca)
    return found


def test_console_over_tls_has_a_secure_cookie_and_strict_transport(tmp_path: Path) -> None:
    own = certificate(tmp_path, "console")
    with (
        broker(tmp_path / "store") as process,
        console_process("--url", f"amqp://127.0.0.1:{process.port}", "--tls-cert", str(own.path)) as port,
    ):
        trusted = ssl.create_default_context(cafile=own.ca)
        connection = HTTPSConnection("127.0.0.1", port, timeout=60, context=trusted)
        connection.request("POST", "/api/v1/session", b"{}", {"Content-Type": "application/json"})
        reply = connection.getresponse()
        assert reply.status == 201
        assert "Secure" in reply.headers["set-cookie"]
        assert reply.headers["strict-transport-security"]
        connection.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            HTTPSConnection("127.0.0.1", port, timeout=60, context=ssl.create_default_context()).connect()


def test_console_sends_no_password_to_a_broker_with_another_certificate(tmp_path: Path) -> None:
    own, other = certificate(tmp_path, "broker"), certificate(tmp_path, "other")
    options = ("--tls-port", "0", "--tls-cert", str(own.path))
    with broker(tmp_path / "store", *options) as process:
        url = "amqps://127.0.0.1:" + process.wait_for(r" listening with TLS on 127\.0\.0\.1:(\d+)$")[1]
        with console_process("--url", url, "--ca", str(own.ca)) as port:
            assert ApiClient(port).login().status == 201
        for trusted in (("--ca", str(other.ca)), ()):
            with console_process("--url", url, *trusted) as port:
                reply = ApiClient(port).login("root", "secret")
                assert (reply.status, reply.condition) == (503, "cairnmq:broker-unavailable")
                assert "certificate" in reply.value["error"]["text"]


def test_killed_console_is_started_again_on_its_port(tmp_path: Path) -> None:
    with broker(tmp_path / "store", "--http-port", "0") as process:
        client = ApiClient(int(process.wait_for(r"web console at http://127.0.0.1:(\d+)/")[1]))
        assert client.login().status == 201
        (first,) = descendants(process.process.pid, CONSOLE)
        os.kill(first, signal.SIGKILL)
        process.wait_for(r"the web console ended with status -9; it is started again in 1 s")
        until_s = time.monotonic() + DEADLINE_S
        while first in descendants(process.process.pid, CONSOLE) or not descendants(process.process.pid, CONSOLE):
            assert time.monotonic() < until_s
        assert client.api("GET", "/session").status == 401, "sessions end with the process"
        assert client.login().status == 201
        assert client.get("/queues")["items"] == []



def shown(port: int) -> bytes:
    """Return the certificate that the console on *port* shows to a new connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port), DEADLINE_S)) as sock:
        return sock.getpeercert(binary_form=True) or b""


def test_console_process_reads_its_certificate_again_on_sighup(tmp_path: Path) -> None:  # A6
    own = certificate(tmp_path, "console")
    with console_process("--url", "amqp://127.0.0.1:1", "--tls-cert", str(own.path)) as port:
        (process,) = descendants(os.getpid(), str(own.path))
        before = shown(port)
        own.path.write_text("no certificate")
        os.kill(process, signal.SIGHUP)
        assert shown(port) == before
        certificate(tmp_path, "console")
        os.kill(process, signal.SIGHUP)
        until_s = time.monotonic() + DEADLINE_S
        while shown(port) == before:
            assert time.monotonic() < until_s


def test_console_process_without_tls_survives_sighup(tmp_path: Path) -> None:  # A6
    with console_process("--url", f"amqp://127.0.0.1:1/{tmp_path.name}") as port:
        (process,) = descendants(os.getpid(), f"amqp://127.0.0.1:1/{tmp_path.name}")
        os.kill(process, signal.SIGHUP)
        with pytest.raises(ssl.SSLError):
            shown(port)  # it answers


def test_console_of_a_broker_reads_its_certificate_again_on_sighup(tmp_path: Path) -> None:  # A6
    own = certificate(tmp_path, "broker")
    options = ("--tls-port", "0", "--tls-cert", str(own.path), "--http-port", "0", "--http-listen", "0.0.0.0")
    with broker(tmp_path / "store", *options) as process:
        port = int(process.wait_for(r"web console at https://0\.0\.0\.0:(\d+)/")[1])
        before = shown(port)
        certificate(tmp_path, "broker")
        process.process.send_signal(signal.SIGHUP)
        until_s = time.monotonic() + DEADLINE_S
        while shown(port) == before:
            assert time.monotonic() < until_s
