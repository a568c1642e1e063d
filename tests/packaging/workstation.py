"""The test host as a client machine of a booted system, with a network connection and a host name for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .booted import DEADLINE_S, Booted

_HOSTS = 'mount --bind "$1" /etc/hosts; shift; exec "$@"'


class Workstation:
    """A runner of programs that reach the booted system by name, with a directory for their files."""

    def __init__(self, place: Path, name: str, address: str) -> None:
        self.place = place
        self.name = name
        self.address = address
        """Address of the booted system."""
        self._hosts = place / "hosts"
        self._hosts.write_text(f"127.0.0.1 localhost\n{address} {name}\n")

    def python(self, *words: str, **environment: str) -> str:
        """Run a Python program that must succeed, and return its output."""
        command = ["unshare", "--mount", "sh", "-ec", _HOSTS, "sh", str(self._hosts), sys.executable, *words]
        done = subprocess.run(
            command, cwd=self.place, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}\n{done.stdout}"
        return done.stdout


@contextmanager
def workstation(system: Booted, place: Path, name: str) -> Iterator[Workstation]:
    """Connect the host with a booted system, which gets a name, until the end of the block."""
    number = os.getpid() % 250 + 1
    interface, here, there = f"cairn{number}", f"10.91.{number}.1", f"10.91.{number}.2"
    peer = ("peer", "name", "eth0", "netns", system.pid)
    subprocess.run(["ip", "link", "add", interface, "type", "veth", *peer], check=True)
    try:
        subprocess.run(["ip", "address", "add", f"{here}/30", "dev", interface], check=True)
        subprocess.run(["ip", "link", "set", interface, "up"], check=True)
        inside = ("nsenter", "-t", system.pid, "-n", "ip")
        subprocess.run([*inside, "address", "add", f"{there}/30", "dev", "eth0"], check=True)
        subprocess.run([*inside, "link", "set", "eth0", "up"], check=True)
        system.run(f"echo '{there} {name}' >> /etc/hosts")
        yield Workstation(place, name, there)
    finally:
        subprocess.run(["ip", "link", "delete", interface], check=False)
