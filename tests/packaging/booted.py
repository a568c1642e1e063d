"""Minimal Debian systems with systemd as first process, in separate namespaces with a loopback interface only."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..fresh_machine.machine import Machine

DEADLINE_S = 120
_BOOT = """
mount --make-rprivate /
mount --rbind "$1" "$1"
cd "$1"
mount --rbind /sys sys
mount -t tmpfs tmpfs sys/fs/cgroup
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
ip link set lo up
exec unshare --pid --fork --kill-child --cgroup sh -ec '
    read -r pid rest < /proc/self/stat; echo "$pid"
    mount -t proc proc proc
    pivot_root . .
    umount --lazy .
    exec chroot . env container=lxc /lib/systemd/systemd'
"""
"""Script that boots the system, and prints the PID of its first process in the host's /proc.

systemd creates a mount namespace for each service, and first changes the propagation of `/`. The kernel refuses this
(EINVAL, and the service ends with 226/NAMESPACE) unless `/` is a mount, which a directory made the root by chroot is
not. Therefore the tree is mounted on itself and made the root of the namespace. The mounts of the host are detached, so
that mounts of other tests are not in the list that systemd reads.
"""


class NotBooted(Exception):
    """Error: this host does not permit operations that systemd requires."""


class Booted:
    """A running system; commands run in its namespaces as root."""

    def __init__(self, pid: str) -> None:
        self._pid = pid

    @property
    def pid(self) -> str:
        """Return the PID of the first process in the host's /proc, which identifies the namespaces."""
        return self._pid

    def run(self, script: str) -> str:
        """Run a shell script that must succeed, and return its output."""
        status, output = self._run(script)
        assert status == 0, f"{script}\n{output}"
        return output

    def wait_for(self, script: str, expected: str) -> None:
        """Run a shell script repeatedly until it prints *expected*."""
        end_s = time.monotonic() + DEADLINE_S
        output = ""
        while time.monotonic() < end_s:
            output = self._run(script)[1]
            if output.strip() == expected:
                return
            time.sleep(0.2)
        raise AssertionError(f"{script}: {output!r}, expected {expected!r}\n{self.log()}")

    def log(self) -> str:
        """Return the systemd journal of the broker's unit."""
        return self._run("journalctl --unit cairnmq --no-pager --lines 60 --output cat")[1]

    def _run(self, script: str) -> tuple[int, str]:
        command = ["nsenter", "-t", self._pid, "-m", "-n", "-p", "-i", "-r", "-w"]
        command += [
            "env",
            "-i",
            "HOME=/root",
            "LANG=C.UTF-8",
            "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND=noninteractive",
            "sh",
            "-ec",
            script,
        ]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=4 * DEADLINE_S, umask=0o022,  # that of root's shells
        )  # fmt: skip
        return done.returncode, done.stdout


@contextmanager
def booted(machine: Machine) -> Iterator[Booted]:
    """Boot a machine on which systemd is installed; raise `NotBooted` if that fails."""
    command = machine.command("unshare", "--net", "--mount", "sh", "-ec", _BOOT, "sh", str(machine.root))
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        try:
            pid = started.stdout.readline().strip()
            if not pid:
                raise NotBooted(started.stderr.read().strip())
            system = Booted(pid)
            try:
                system.wait_for("systemctl is-active multi-user.target || true", "active")
            except AssertionError as error:
                raise NotBooted(str(error)) from error
            yield system
        finally:
            subprocess.run(["kill", "-KILL", pid] if pid else ["true"], check=False)
            started.kill()
