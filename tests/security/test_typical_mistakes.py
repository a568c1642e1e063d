"""Typical mistakes of new users are reported in one helpful line by the broker process and by the client."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.harness.mounted_disk import mounted_disk
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess, broker
from tests.harness.router.joined import until

from .conftest import Certificates


@pytest.fixture
def running(tmp_path: Path, certificates: Certificates) -> Iterator[BrokerProcess]:
    tls = certificates.options()
    users = tmp_path / "users"
    added = subprocess.run(
        [CAIRNMQ, "users", "add", "anna", "--users-file", str(users), "--iterations", "15000"],
        input="pw\n", text=True, capture_output=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert added.returncode == 0, added.stderr
    options = (
        "--tls-port", "0", "--tls-cert", tls.cert, "--tls-key", tls.key, "--metrics-port", "0",
        "--users-file", str(users),
    )  # fmt: skip
    with broker(tmp_path / "data", *options) as process:
        yield process


def tls_port(running: BrokerProcess) -> int:
    return int(running.wait_for(r" listening with TLS on 127\.0\.0\.1:(\d+)$")[1])


def metrics_port(running: BrokerProcess) -> int:
    return int(running.wait_for(r" metrics at http://127\.0\.0\.1:(\d+)/")[1])


def answer(port: int, data: bytes) -> bytes:
    """Send *data* and return all bytes that the broker sends before closing the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock:
        sock.sendall(data)
        found = b""
        while more := sock.recv(4096):
            found += more
    return found


def ctl(url: str, *options: str, password: str = "pw") -> str:
    """Run `ctl` with *url*, which must fail, and return its single error line."""
    done = subprocess.run(
        [CAIRNMQ, "ctl", "--url", url, *options, "queues", "list"],
        capture_output=True, text=True, timeout=DEADLINE_S, env={**os.environ, "CAIRNMQ_PASSWORD": password},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    return line


def test_client_of_amqp_0_9_1(running: BrokerProcess) -> None:
    assert answer(running.port, b"AMQP\x00\x00\x09\x01") == b"AMQP\x03\x01\x00\x00", "the header of what is spoken"
    running.wait_for(r" login\.failed .*this client speaks AMQP 0-9-1 .*CairnMQ speaks AMQP 1\.0 only")


def test_http_at_the_amqp_port(running: BrokerProcess) -> None:
    assert answer(running.port, b"GET /metrics HTTP/1.1\r\n\r\n") == b"AMQP\x03\x01\x00\x00"
    running.wait_for(r" login\.failed .*an HTTP request came to the AMQP port; .*--metrics-port")


def test_http_at_the_tls_port(running: BrokerProcess) -> None:
    answer(tls_port(running), b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    running.wait_for(r" router .*TLS failed: an HTTP request came to the port of --tls-port")


def test_amqp_at_the_metrics_port(running: BrokerProcess) -> None:
    assert "that port does not speak AMQP" in ctl(f"amqp://127.0.0.1:{metrics_port(running)}", "--user", "anna")
    running.wait_for(r" WARNING metrics.refused metrics: 127\.0\.0\.1: a client of AMQP came to --metrics-port")


def test_tls_at_the_metrics_port(running: BrokerProcess) -> None:
    assert "that port does not speak TLS" in ctl(f"amqps://127.0.0.1:{metrics_port(running)}", "--user", "anna")
    running.wait_for(r" WARNING metrics.refused metrics: 127\.0\.0\.1: a client of TLS came to --metrics-port")


def test_tls_at_the_plain_port(running: BrokerProcess) -> None:
    line = ctl(f"amqps://127.0.0.1:{running.port}", "--user", "anna")
    assert "that port does not speak TLS; use amqp://, or the port of the broker's --tls-port" in line
    running.wait_for(r" login\.failed .*TLS is not spoken at this port; see --tls-port")


def test_no_tls_at_the_tls_port(running: BrokerProcess) -> None:
    line = ctl(f"amqp://127.0.0.1:{tls_port(running)}", "--user", "anna")
    assert line.endswith(("that port speaks TLS; use amqps://", "if that is a TLS port, use amqps://"))
    running.wait_for(r" router .*TLS failed: the client does not speak TLS; this is the port of --tls-port")


def test_wrong_ca(running: BrokerProcess) -> None:
    line = ctl(f"amqps://127.0.0.1:{tls_port(running)}", "--user", "anna")
    assert "the broker's certificate is not trusted" in line
    assert line.endswith("name the CA that signed it with --ca")
    running.wait_for(r" router .*TLS failed: the client does not trust this certificate; give it the CA")


def test_wrong_password(running: BrokerProcess) -> None:
    line = ctl(f"amqp://127.0.0.1:{running.port}", "--user", "anna", password="wrong")
    assert "login failed: wrong user name or password (user 'anna', SCRAM-SHA-256)" in line
    running.wait_for(r" WARNING login\.failed 127\.0\.0\.1:\d+: login of user 'anna' failed \(SCRAM-SHA-256\)")


def test_no_user_name(running: BrokerProcess) -> None:
    line = ctl(f"amqp://127.0.0.1:{running.port}")
    assert "the broker requires a user name (it offers SCRAM-SHA-256); name the user with --user" in line
    running.wait_for(r" WARNING login\.failed .*closed the connection without choosing a SASL mechanism \(offered: ")


def test_port_without_a_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert ctl(f"amqp://127.0.0.1:{port}") == (
        f"cairnmq: amqp://127.0.0.1:{port}: can't be reached: connection refused; is a broker running there?"
    )


def refused(*command: str, status: int = 1) -> str:
    """Run a command, which must fail with *status*, and return its single error line."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout) == (status, "")
    [line] = done.stderr.splitlines()
    return line


def test_port_of_another_program(tmp_path: Path) -> None:
    """A port that another program uses is reported, as when the broker of a tutorial is still running."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = refused(CAIRNMQ, "broker", "--store-dir", str(tmp_path / "data"), "--port", str(port))
    assert line == (
        f"cairnmq: 127.0.0.1:{port}: can't listen there: Address already in use; "
        "stop the program that uses it, or choose another --port or --listen"
    )


@pytest.mark.skipif(
    int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 672 or not shutil.which("setpriv"),
    reason="every user may listen on low ports here, or the tool that takes a capability away is missing",
)
def test_privileged_port(tmp_path: Path) -> None:
    """A privileged port is reported if CAP_NET_BIND_SERVICE is missing, of which the test deprives root."""
    within = ["setpriv", "--bounding-set=-net_bind_service"] if os.geteuid() == 0 else []
    line = refused(*within, CAIRNMQ, "broker", "--store-dir", str(tmp_path / "data"), "--port", "672")
    assert line == (
        "cairnmq: 127.0.0.1:672: can't listen there: Permission denied; ports below 1024 need CAP_NET_BIND_SERVICE "
        "(systemd: AmbientCapabilities); or choose another --port or --listen"
    )


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("--users-file", "there is no such users file; make one with `cairnmq users add`"),
        ("--acl-file", "can't be read: No such file or directory"),
        ("--audit-file", "can't be written: No such file or directory; name a file of this user"),
        ("--log-file", "can't be written: No such file or directory; name a file in a directory of this user"),
    ],
)
def test_missing_file_or_directory(tmp_path: Path, option: str, complaint: str) -> None:
    path = str(tmp_path / "nowhere" / "file")
    line = refused(CAIRNMQ, "broker", "--store", "memory", "--port", "0", option, path, status=2)
    assert path in line
    assert complaint in line


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 24 MiB."""
    with mounted_disk(tmp_path / "disk", "size=24m") as place:
        yield place


def http(port: int, path: str) -> str:
    return answer(port, f"GET {path} HTTP/1.0\r\n\r\n".encode()).decode()


def test_full_disk_is_an_alarm_in_the_log_ctl_metrics_and_readiness(small_disk: Path) -> None:
    with broker(small_disk / "data", "--metrics-port", "0") as running:
        port = metrics_port(running)
        assert " 200 OK" in http(port, "/ready")
        with open(small_disk / "others", "wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 20))
        until(lambda: " 503 " in http(port, "/ready"), "the broker to notice")
        assert "the store is full: " in http(port, "/ready")
        assert 'cairnmq_alarm{resource="disk"} 1.0' in http(port, "/metrics")
        running.wait_for(r" WARNING disk\.low .* left on the disk")
        ask = [CAIRNMQ, "ctl", "--json", "--url", f"127.0.0.1:{running.port}", "broker"]
        found = subprocess.run(ask, capture_output=True, text=True, timeout=DEADLINE_S)
        [alarm] = json.loads(found.stdout)["alarms"]
        assert alarm.startswith("disk: ")
        assert "left on the disk" in alarm
