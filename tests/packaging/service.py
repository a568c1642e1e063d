"""Checks of the Debian package's service on a booted system: use, upgrade, configuration, removal.

Each function except `remove` leaves the service running. `/root/first.deb` is the installed package, `/root/next.deb`
its next revision.
"""

from __future__ import annotations

import shlex

from ..fresh_machine.machine import Machine
from ..readme_blocks import section
from .booted import Booted

PAGE = "how-to/debian-package.md"
PACKAGES = "systemd logrotate libsasl2-modules man-db bash-completion"
"""The packages that the tests use, besides the one under test."""
NEXT_REVISION = (
    "dpkg-deb -R /root/first.deb /root/next && sed -i 's/^Version: .*/&.1/' /root/next/DEBIAN/control"
    " && dpkg-deb -b -Znone /root/next /root/next.deb && rm -r /root/next"
)
STATE = "systemctl show cairnmq --property SubState --value"
_PYTHON = "/usr/lib/cairnmq/bin/python3"
_MAIN_PID = "systemctl show cairnmq --property MainPID --value"
_RESTARTS = "systemctl show cairnmq --property NRestarts --value"
_PATHS = ("/etc/cairnmq/cairnmq.toml", "/var/lib/cairnmq/store", "/var/log/cairnmq")
_USERS = "/etc/cairnmq/users"
_PASSWORD = "one stone"
_SEND = """
from proton import Message
from proton.utils import BlockingConnection
connection = BlockingConnection("127.0.0.1:5672", timeout=60, {login})
connection.create_sender("orders").send(Message(body="kept", durable=True))
"""
_RECEIVE = """
from proton.utils import BlockingConnection
receiver = BlockingConnection("127.0.0.1:5672", timeout=60, {login}).create_receiver("orders")
print(receiver.receive(timeout=30).body)
receiver.accept()
"""
_LOGIN = f"user='anna', password='{_PASSWORD}'"
_PRODUCER = """
import time
from pathlib import Path
from proton import Message, ProtonException
from proton.utils import BlockingConnection
number, stop = 0, Path("/root/stop")
with open("/root/confirmed", "w", buffering=1) as confirmed:
    while True:
        try:
            sender = BlockingConnection("127.0.0.1:5672", timeout=20).create_sender("upgraded")
            while not stop.exists():
                sender.send(Message(body=number, durable=True))
                print(number, file=confirmed)
                number += 1
            sender.send(Message(body=-1, durable=True))
            break
        except (ProtonException, OSError):
            time.sleep(0.05)
Path("/root/ended").touch()
"""
_COMPARE = """
from proton.utils import BlockingConnection
receiver = BlockingConnection("127.0.0.1:5672", timeout=60).create_receiver("upgraded", credit=100)
received = []
while not received or received[-1] != -1:
    received.append(receiver.receive(timeout=60).body)
    receiver.accept()
with open("/root/confirmed") as lines:
    confirmed = {int(line) for line in lines}
print(f"{len(confirmed - set(received))} of {'all' if confirmed else 'no'} confirmed messages are missing")
"""
_OCCUPY = """
import socket, time
with socket.create_server(("127.0.0.1", 5672)):
    open("/root/occupied", "w").close()
    while True:
        time.sleep(60)
"""


def next_revision(machine: Machine) -> None:
    """Build the package of the next revision from the first one."""
    machine.run(NEXT_REVISION)


def use(system: Booted) -> None:
    system.wait_for(STATE, "running")
    for command in _page("Install")[1:]:
        system.run(command)
    assert system.run(f"stat -c %U /proc/$({_MAIN_PID})") == "cairnmq\n"
    assert system.run("stat -c '%U %a' /var/lib/cairnmq/store /etc/cairnmq/cairnmq.toml") == "cairnmq 700\nroot 640\n"
    assert "complete -o nosort -F" in system.run("cat /usr/share/bash-completion/completions/cairnmq")
    assert "Run a durable AMQP 1.0 broker" in system.run("man cairnmq-broker")
    system.run(_python("import opentelemetry.sdk.trace, psycopg, uvicorn\n"))  # the extras of packaging/extras.txt

    # a reload reads files again; after rotation the broker writes to a new file
    system.run("systemctl reload cairnmq")
    system.wait_for("journalctl --unit cairnmq --output cat | grep -c broker.reloaded", "1")
    system.run("logrotate --force /etc/logrotate.d/cairnmq && cairnmq ctl queues create rotated")
    system.wait_for("ls /var/log/cairnmq | tr '\\n' ' '", "audit.log audit.log.1")


def hang(system: Booted) -> None:
    """Check that the watchdog ends and restarts a broker that hangs."""
    system.run(
        "mkdir -p /etc/systemd/system/cairnmq.service.d && printf '[Service]\\nWatchdogSec=2\\n'"
        " > /etc/systemd/system/cairnmq.service.d/watchdog.conf && systemctl daemon-reload && systemctl restart cairnmq"
    )
    hung = system.run(_MAIN_PID).strip()
    system.run(f"kill -STOP {hung}")
    system.wait_for(f"test $({_RESTARTS}) -ge 1 && echo restarted || true", "restarted")
    system.run("rm -r /etc/systemd/system/cairnmq.service.d && systemctl daemon-reload && systemctl restart cairnmq")
    assert system.run(_MAIN_PID).strip() != hung


def upgrade_and_downgrade(system: Booted) -> None:
    """Check that an upgrade and a downgrade preserve changed configuration and all messages confirmed meanwhile."""
    system.run("echo 'max-connections = 700' >> /etc/cairnmq/cairnmq.toml")
    system.run(_python(_SEND))
    system.run("cp -a /usr/lib/cairnmq /root/client")  # the producer's modules are not replaced by the upgrade
    system.run(f"cat > /root/producer.py <<'END'\n{_PRODUCER}END\n")
    system.run("setsid /root/client/bin/python3 /root/producer.py < /dev/null > /root/producer.log 2>&1 &")
    _wait_for_confirmed(system, 50)
    for package, suffix in (("next", ".1"), ("first", "-1")):
        before = system.run(_MAIN_PID).strip()
        system.run(f"apt-get install -y --allow-downgrades /root/{package}.deb")
        system.wait_for(STATE, "running")
        assert system.run(_MAIN_PID).strip() != before
        assert system.run("dpkg-query -W -f '${Version}' cairnmq").endswith(suffix)
        assert "max-connections = 700" in system.run("cat /etc/cairnmq/cairnmq.toml")
        _wait_for_confirmed(system, 50 + int(system.run("wc -l < /root/confirmed")))
    system.run("touch /root/stop")
    system.wait_for("ls /root/ended || true", "/root/ended")
    assert system.run(_python(_COMPARE)) == "0 of all confirmed messages are missing\n"
    assert system.run(_python(_RECEIVE)) == "kept\n"


def fail_to_start(system: Booted) -> None:
    """Check that a failed start is logged with its reason, and retried only for temporary errors."""
    system.run("echo 'max-conections = 700' >> /etc/cairnmq/cairnmq.toml; systemctl restart cairnmq || true")
    system.wait_for(STATE, "failed")
    assert system.run(_RESTARTS) == "0\n"
    assert "max-conections: unknown key; did you mean 'max-connections'?" in system.log()

    system.run("sed -i '$d' /etc/cairnmq/cairnmq.toml")
    system.run(f"cat > /root/occupy.py <<'END'\n{_OCCUPY}END\n")
    system.run("setsid /root/client/bin/python3 /root/occupy.py < /dev/null > /dev/null 2>&1 & echo $! > /root/pid")
    system.wait_for("ls /root/occupied || true", "/root/occupied")
    system.run("systemctl start cairnmq || true")
    in_use = (
        "127.0.0.1:5672: can't listen there: Address already in use; stop the program that uses it, or choose another"
    )
    assert in_use in system.log()
    system.run("kill $(cat /root/pid)")
    system.wait_for(STATE, "running")


def configure(system: Booted) -> None:
    """Execute the section "Configure" of the page, and log in."""
    add, *others = _page("Configure")
    system.run("\n".join((f"printf '%s\\n' {shlex.quote(_PASSWORD)} | {add}", *others)))
    system.run(_python(_SEND, _LOGIN))


def remove(system: Booted) -> None:
    """Check that removal stops the broker, a purge keeps messages and operator files, and a new installation works."""
    system.run("dpkg -r cairnmq")
    assert system.run("systemctl is-active cairnmq || true").strip() == "inactive"
    assert _existing(system, "/usr/bin/cairnmq", *_PATHS) == [*_PATHS]
    assert "messages are kept in /var/lib/cairnmq" in system.run("dpkg -P cairnmq")
    assert _existing(system, "/usr/bin/cairnmq", *_PATHS, _USERS) == [_USERS, "/var/lib/cairnmq/store"]
    assert system.run("stat -c %U /var/lib/cairnmq/store") == "cairnmq\n"

    system.run("dpkg -i /root/first.deb")
    system.wait_for(STATE, "running")
    assert system.run(_python(_RECEIVE)) == "kept\n"


def _page(heading: str) -> list[str]:
    """Return the commands of a section of the page."""
    [block] = section(PAGE, heading)
    return block.commands


def _python(program: str, login: str = "") -> str:
    """Return a command that runs a program with the package's Python."""
    return f"{_PYTHON} - <<'END'\n{program.replace('{login}', login)}END\n"


def _existing(system: Booted, *paths: str) -> list[str]:
    """Return the paths that exist."""
    return system.run(f"ls -d {' '.join(paths)} 2>/dev/null || true").split()


def _wait_for_confirmed(system: Booted, count: int) -> None:
    system.wait_for(f"test $(wc -l < /root/confirmed) -ge {count} && echo confirmed || true", "confirmed")
